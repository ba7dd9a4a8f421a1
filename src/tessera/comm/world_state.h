#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/comm/claims.h"
#include "tessera/comm/group.h"
#include "tessera/comm/transport.h"
#include "tessera/comm/world.h"

namespace tessera::detail {

class RouteCache;

/// What messages call a group: `world` for all ranks, the first name that it was asked for by, or else its
/// ranks. A thread may give it a name while another one reads it, which then keeps what it has read.
class GroupName {
 public:
  GroupName(std::string first, bool is_final) : first_(std::move(first)), is_final_(is_final) {}

  [[nodiscard]] const std::string& get() const {
    return is_given_.load(std::memory_order_acquire) ? given_ : first_;
  }
  /// Does nothing when it is final, or has been given one. Not to be called by two threads at a time.
  void give(std::string name) {
    if (std::exchange(is_final_, true)) return;
    given_ = std::move(name);
    is_given_.store(true, std::memory_order_release);
  }
  /// It stays what it is from now on. As `give`, by one thread at a time.
  void keep() { is_final_ = true; }

 private:
  std::string first_;
  std::string given_;
  std::atomic<bool> is_given_ = false;
  bool is_final_;
};

/// What a `Group` refers to: one rank's view of one group.
struct GroupState {
  GroupState(std::vector<std::int64_t> members, std::string first_name, bool is_final)
      : ranks(std::move(members)), name(std::move(first_name), is_final) {}

  std::vector<std::int64_t> ranks;
  std::int64_t index = 0;
  GroupName name;
  /// The world it belongs to, which owns it; gone when the rank's function has returned.
  std::weak_ptr<WorldState> world;
  Claims claims;
  /// Made when the group is first used, see `connect`.
  std::unique_ptr<Transport> transport;
};

/// The options as the environment changes them.
[[nodiscard]] WorldOptions effective_options(WorldOptions options);

/// What a `World` refers to: one rank's view of all ranks. Engines derive from it.
///
/// Used by its own rank only; what ranks share lives in the engines. A rank may have several threads,
/// that of a backward pass for one: each may ask for groups, and one at a time may communicate.
class WorldState : public std::enable_shared_from_this<WorldState> {
 public:
  WorldState(std::int64_t rank, std::int64_t size, WorldOptions options);
  virtual ~WorldState() = default;

  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] const WorldOptions& options() const { return options_; }
  [[nodiscard]] virtual const char* engine() const = 0;
  /// That of one group, which need not be connected yet.
  [[nodiscard]] virtual const char* engine_of(const GroupState& group) const {
    (void)group;
    return engine();
  }
  /// What moving data costs with this engine. The same on all ranks.
  [[nodiscard]] virtual CostModel cost_model() const { return {}; }

  /// Finds or adds a group; the arguments are checked by `World::group`.
  std::shared_ptr<GroupState> group(const std::vector<std::int64_t>& ranks, std::string name = {});

  /// The redistributions that this rank has made before.
  [[nodiscard]] RouteCache& routes();

  /// Makes one rank's end of a group's transport. Called by all members, in the same order.
  virtual std::unique_ptr<Transport> make_transport(const GroupState& group) = 0;

  /// The group is about to be used, and what it is called then stays.
  void keep_name(GroupState& group);

  /// The rank's function threw: tells the others why it will not come any more. Otherwise the end of
  /// the world means that it returned.
  virtual void fail(const std::string& what) { (void)what; }

 protected:
  /// Closes all groups' transports. For engines that must do so before their own end.
  void close_transports();

 private:
  friend class SoleUse;

  std::int64_t rank_;
  std::int64_t size_;
  WorldOptions options_;
  /// The thread that communicates; none at first.
  std::atomic<std::thread::id> user_;
  std::mutex groups_mutex_;
  std::map<std::vector<std::int64_t>, std::shared_ptr<GroupState>> groups_;
  std::shared_ptr<RouteCache> routes_;
};

/// Says that the calling thread communicates, while alive; may be nested. As nothing that communicates
/// is locked, a second thread of the same rank is refused meanwhile.
class SoleUse {
 public:
  /// `function` is what the user called. Throws `InvalidArgument` when another thread is in a call.
  SoleUse(WorldState& world, const char* function);
  ~SoleUse();
  SoleUse(const SoleUse&) = delete;
  SoleUse& operator=(const SoleUse&) = delete;

 private:
  /// Null where another one of this thread's is around it.
  std::atomic<std::thread::id>* user_;
};

/// Returns the world of a group. Throws `InvalidArgument` when that has ended.
[[nodiscard]] std::shared_ptr<WorldState> world_of(const Group& group);

/// Returns the group's transport, made on first use: a rendezvous of its members. Throws
/// `InvalidArgument` when the world has ended.
Transport& connect(const Group& group);

/// Makes `world` the calling thread's `World::current()` while alive.
class CurrentWorld {
 public:
  explicit CurrentWorld(std::shared_ptr<WorldState> world);
  ~CurrentWorld();
  CurrentWorld(const CurrentWorld&) = delete;
  CurrentWorld& operator=(const CurrentWorld&) = delete;

 private:
  std::shared_ptr<WorldState> previous_;
};

}  // namespace tessera::detail
