#include "tessera/comm/world.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/comm/current_world.h"
#include "tessera/comm/route.h"
#include "tessera/comm/world_state.h"

namespace tessera {
namespace detail {
namespace {

thread_local std::shared_ptr<WorldState> current_world;

std::mutex process_world_mutex;
std::shared_ptr<WorldState> process_world;

/// The calling thread's world, or else the process's; null when there is neither.
std::shared_ptr<WorldState> find_world() {
  if (current_world != nullptr) return current_world;
  const std::lock_guard lock(process_world_mutex);
  return process_world;
}

/// `TESSERA_CHECK=0` wins over the program's choice: it is there to find out what checks cost.
bool check_is_on(const WorldOptions& options) {
  const char* value = std::getenv("TESSERA_CHECK");
  return options.check && (value == nullptr || std::string_view(value) != "0");
}

/// True for 0, 1, ..., `size` - 1; no rank occurs twice.
bool is_all_of(const std::vector<std::int64_t>& ranks, std::int64_t size) {
  return static_cast<std::int64_t>(ranks.size()) == size &&
         std::is_sorted(ranks.begin(), ranks.end());
}

}  // namespace

WorldOptions effective_options(WorldOptions options) {
  options.check = check_is_on(options);
  return options;
}

WorldState::WorldState(std::int64_t rank, std::int64_t size, WorldOptions options)
    : rank_(rank), size_(size), options_(effective_options(options)) {}

std::shared_ptr<GroupState> WorldState::group(const std::vector<std::int64_t>& ranks,
                                              std::string name) {
  const std::lock_guard lock(groups_mutex_);
  auto& found = groups_[ranks];
  if (found == nullptr) {
    const auto place = std::find(ranks.begin(), ranks.end(), rank_);
    const bool is_world = is_all_of(ranks, size_);
    std::string first_name = is_world ? "world" : concat('{', joined(ranks, ","), '}');
    found = std::make_shared<GroupState>(ranks, std::move(first_name), is_world);
    found->index = place - ranks.begin();
    found->world = weak_from_this();
  }
  if (!name.empty()) found->name.give(std::move(name));
  return found;
}

void WorldState::keep_name(GroupState& group) {
  const std::lock_guard lock(groups_mutex_);
  group.name.keep();
}

RouteCache& WorldState::routes() {
  if (routes_ == nullptr) routes_ = std::make_shared<RouteCache>();
  return *routes_;
}

void WorldState::close_transports() {
  const std::lock_guard lock(groups_mutex_);
  for (const auto& [ranks, group] : groups_) group->transport.reset();
}

SoleUse::SoleUse(WorldState& world, const char* function) : user_(&world.user_) {
  std::thread::id other;
  if (user_->compare_exchange_strong(other, std::this_thread::get_id())) return;
  TESSERA_CHECK(other == std::this_thread::get_id(), function, ": called on rank ", world.rank(),
                " while another thread of that rank is communicating; a rank communicates from one "
                "thread at a time: let the other one finish first");
  user_ = nullptr;
}

SoleUse::~SoleUse() {
  if (user_ != nullptr) user_->store(std::thread::id());
}

std::shared_ptr<WorldState> world_of(const Group& group) {
  auto world = group.state().world.lock();
  TESSERA_CHECK(world != nullptr, "group ", group.name(),
                " is used after its world has ended; groups and meshes live inside of launch and "
                "run_ranks");
  return world;
}

Transport& connect(const Group& group) {
  GroupState& state = group.state();
  if (state.transport == nullptr) {
    const auto world = world_of(group);
    world->keep_name(state);
    state.transport = world->make_transport(state);
    state.transport->set_claims(&state.claims);
  }
  return *state.transport;
}

void set_process_world(std::shared_ptr<WorldState> world) {
  // The old world ends outside of the lock: that may take as long as other ranks do.
  const std::lock_guard lock(process_world_mutex);
  process_world.swap(world);
}

CurrentWorld::CurrentWorld(std::shared_ptr<WorldState> world)
    : previous_(std::exchange(current_world, std::move(world))) {}

CurrentWorld::~CurrentWorld() { current_world = std::move(previous_); }

}  // namespace detail

World World::current() {
  auto world = detail::find_world();
  TESSERA_CHECK(
      world != nullptr,
      "World::current: the calling thread is no rank; call it inside of the function that "
      "launch or run_ranks runs");
  return World(std::move(world));
}

bool World::is_running() { return detail::find_world() != nullptr; }

std::int64_t World::rank() const { return state_->rank(); }

std::int64_t World::size() const { return state_->size(); }

const char* World::engine() const { return state_->engine(); }

const WorldOptions& World::options() const { return state_->options(); }

Group World::group() const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return Group(state_->group(all));
}

Group World::group(const std::vector<std::int64_t>& ranks, std::string name) const {
  std::unordered_set<std::int64_t> seen;
  for (const auto member : ranks) {
    TESSERA_CHECK(member >= 0 && member < size(), "World::group: rank ", member, " given among {",
                  joined(ranks, ","), "}; the world has ranks 0 to ", size() - 1);
    TESSERA_CHECK(seen.insert(member).second, "World::group: rank ", member, " given twice among {",
                  joined(ranks, ","), "}; name every member once");
  }
  TESSERA_CHECK(seen.contains(rank()), "World::group: ranks {", joined(ranks, ","),
                "} given on rank ", rank(), "; only members can ask for a group");
  return Group(state_->group(ranks, std::move(name)));
}

}  // namespace tessera
