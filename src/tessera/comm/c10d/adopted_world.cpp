#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tessera/base/check.h"
#include "tessera/comm/c10d.h"
#include "tessera/comm/c10d/c10d_store.h"
#include "tessera/comm/c10d/c10d_transport.h"
#include "tessera/comm/c10d/channel.h"
#include "tessera/comm/c10d/gloo_costs.h"
#include "tessera/comm/c10d/process_world.h"
#include "tessera/comm/c10d/solo_transport.h"
#include "tessera/comm/c10d/store_board.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/device_mesh.h"

namespace tessera {
namespace detail {
namespace {

using Ranks = std::vector<std::int64_t>;
using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

struct Adopted {
  BackendPtr backend;
  BackendTraits traits;
};

/// `function` is what the user called.
void check_has_backend(const GroupPtr& group, const char* function) {
  TESSERA_CHECK(group, function,
                ": no process group given; pass one that all its members have made");
  TESSERA_CHECK(
      !group->getDeviceTypes().empty(), function,
      ": a process group without a backend given; set one for the device whose tensors it "
      "shall move");
}

Adopted take_backend(const GroupPtr& group) {
  const auto devices = group->getDeviceTypes();
  const auto is_cpu = [](const c10::Device& device) { return device.is_cpu(); };
  const auto host = std::find_if(devices.begin(), devices.end(), is_cpu);
  const c10::Device device = host != devices.end() ? *host : devices.front();
  Adopted adopted;
  adopted.backend = group->getBackend(device.type());
  adopted.traits.engine = adopted.backend->getBackendName();
  adopted.traits.polls_collectives = adopted.traits.engine == "gloo";
  adopted.traits.exchanges_small = adopted.traits.engine == "gloo" && device.is_cpu();
  adopted.traits.device = device;
  return adopted;
}

/// Every member's process.
std::vector<ProcessIdentity> introduce(const Adopted& adopted) {
  constexpr std::size_t kLongest = 512;
  std::string own = encode(this_process());
  own.resize(kLongest);
  at::Tensor mine = at::empty({kLongest}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), own.data(), kLongest);
  mine = mine.to(adopted.traits.device);
  const int size = adopted.backend->getSize();
  at::Tensor all = at::empty({size * static_cast<std::int64_t>(kLongest)}, mine.options());
  adopted.backend->_allgather_base(all, mine)->wait();
  all = all.to(at::kCPU);
  std::vector<ProcessIdentity> processes;
  for (int i = 0; i < size; ++i) {
    const auto* text = static_cast<const char*>(all.const_data_ptr()) + kLongest * i;
    processes.push_back(decode_process(text));
  }
  return processes;
}

std::shared_ptr<StatusBoard> make_board(const GroupPtr& group) {
  const auto store = group->getStore();
  if (!store) return std::make_shared<NoBoard>();
  // A process group may be adopted again; all members do so equally often.
  const auto times = make_key_store(store)->add(concat("tessera/adopted/", group->getRank()), 1);
  const auto keys = make_key_store(prefixed(store, concat("tessera/adopted/", times, "th")));
  return std::make_shared<StoreBoard>(keys->clone(), group->getRank(), group->getSize(),
                                      "the maker of the process group");
}

/// The first exchange: whatever fails in it fails in the program's own process group.
std::shared_ptr<Peers> meet_peers(std::int64_t rank, const Adopted& whole, const GroupPtr& all) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    auto processes = introduce(whole);
    return std::make_shared<Peers>(rank, std::move(processes), make_board(all));
  } catch (const std::exception& error) {
    const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    throw CommError(
        concat("the members of the process group did not find each other (", error.what(), ")"),
        {rank, "world", "adopt", elapsed});
  }
}

void check_fits(const AdoptedGroup& group, std::int64_t own_rank, std::int64_t world_size) {
  TESSERA_CHECK(group.group, "adopt: no process group given for ranks {", joined(group.ranks, ","),
                "}");
  check_has_backend(group.group, "adopt");
  const std::int64_t index = group.group->getRank();
  const auto size = static_cast<std::int64_t>(group.ranks.size());
  TESSERA_CHECK(group.group->getSize() == size, "adopt: ranks {", joined(group.ranks, ","),
                "} given for a process group of size ", group.group->getSize(),
                "; give one rank per member");
  TESSERA_CHECK(group.ranks[static_cast<std::size_t>(index)] == own_rank, "adopt: ranks {",
                joined(group.ranks, ","),
                "} given for a process group in which this process, rank ", own_rank,
                ", is number ", index, "; give the ranks in the group's order");
  for (const auto rank : group.ranks) {
    TESSERA_CHECK(rank >= 0 && rank < world_size, "adopt: rank ", rank, " given among {",
                  joined(group.ranks, ","), "}; the world has ranks 0 to ", world_size - 1);
  }
}

class AdoptedWorld : public ProcessWorld {
 public:
  AdoptedWorld(const WorldOptions& options, std::shared_ptr<Peers> peers,
               std::map<Ranks, Adopted> groups, std::string engine, GroupMaker make_group)
      : ProcessWorld(peers->size(), options, peers),
        groups_(std::move(groups)),
        engine_(std::move(engine)),
        make_group_(std::move(make_group)) {}

  ~AdoptedWorld() override {
    post_end();
    close_transports();
  }
  AdoptedWorld(const AdoptedWorld&) = delete;
  AdoptedWorld& operator=(const AdoptedWorld&) = delete;

  [[nodiscard]] const char* engine() const override { return engine_.c_str(); }
  [[nodiscard]] const char* engine_of(const GroupState& group) const override {
    const auto found = groups_.find(group.ranks);
    return found == groups_.end() ? engine() : found->second.traits.engine.c_str();
  }

  /// Nothing is known of engines other than ours.
  [[nodiscard]] CostModel cost_model() const override {
    return engine_ == "gloo" ? kGlooCosts : CostModel();
  }

  std::unique_ptr<Transport> make_transport(const GroupState& group) override {
    auto found = groups_.find(group.ranks);
    if (found == groups_.end() && group.ranks.size() == 1) return make_solo_transport(engine());
    if (found == groups_.end() && make_group_) {
      const AdoptedGroup made{make_group_(group.ranks), group.ranks};
      check_fits(made, rank(), size());
      found = groups_.emplace(group.ranks, take_backend(made.group)).first;
    }
    std::vector<std::string> known;
    for (const auto& [ranks, adopted] : groups_)
      known.push_back(concat('{', joined(ranks, ","), '}'));
    TESSERA_CHECK(found != groups_.end(), "group {", joined(group.ranks, ","),
                  "} is needed in a world of adopted process groups, which has ", joined(known),
                  "; pass a process group of these ranks, in this order, to adopt");
    auto channel =
        std::make_shared<Channel>(found->second.backend, found->second.traits, watch_of(group));
    return std::make_unique<C10dTransport>(std::move(channel),
                                           static_cast<std::size_t>(group.index));
  }

 private:
  std::map<Ranks, Adopted> groups_;
  std::string engine_;
  GroupMaker make_group_;
};

}  // namespace
}  // namespace detail

World adopt(const c10::intrusive_ptr<c10d::ProcessGroup>& all,
            const std::vector<AdoptedGroup>& others, const WorldOptions& options,
            GroupMaker make_group) {
  using namespace detail;
  check_has_backend(all, "adopt");
  const std::int64_t rank = all->getRank();
  const std::int64_t size = all->getSize();
  for (const auto& other : others) check_fits(other, rank, size);
  Ranks ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
  std::map<Ranks, Adopted> groups;
  const Adopted& whole = groups[ranks] = take_backend(all);
  for (const auto& other : others) groups[other.ranks] = take_backend(other.group);
  auto peers = meet_peers(rank, whole, all);
  std::string engine = whole.traits.engine;
  return World(std::make_shared<AdoptedWorld>(options, std::move(peers), std::move(groups),
                                              std::move(engine), std::move(make_group)));
}

// Here and not with the mesh, whose other sources know nothing of c10d.
DeviceMesh DeviceMesh::from_group(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                  std::string device_type, std::string name,
                                  const WorldOptions& options) {
  detail::check_has_backend(group, "DeviceMesh::from_group");
  check_device_type(device_type);
  const World world = adopt(group, {}, options);
  return from_group(world.group(), std::move(device_type), std::move(name));
}

}  // namespace tessera
