#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/comm/claims.h"
#include "tessera/comm/comm_error.h"

namespace tessera::detail {

/// One member's part in an operation of the threads engine. Members see each other's parts, so data
/// goes straight from the sender's tensor to the receiver's.
class ThreadOp {
 public:
  /// What members announced that they call, as far as checks are on.
  struct Announced {
    const char* name = "";
    std::string arguments;
    Claims claims;
  };

  /// Called `name` unless it was announced under another one.
  ThreadOp(const char* name, Announced announced)
      : name_(*announced.name == '\0' ? name : announced.name),
        arguments_(std::move(announced.arguments)),
        claims_(std::move(announced.claims)) {}
  virtual ~ThreadOp() = default;

  /// Does this member's share of a phase. All members have posted; a phase begins when all shares
  /// of the one before are done. May be called on another member's thread, at the same time as the
  /// other shares: what one of them writes, no other one may touch in the same phase.
  virtual void run(std::span<ThreadOp* const> members, std::int64_t phase) = 0;
  [[nodiscard]] virtual std::int64_t phases() const { return 1; }
  /// About how many bytes `run` copies.
  [[nodiscard]] virtual std::int64_t bytes() const { return 0; }
  /// Says what of this member's part does not fit the others', beyond `arguments`; empty when all
  /// does.
  [[nodiscard]] virtual std::string conflict(std::span<ThreadOp* const> members,
                                             std::size_t own_member) const {
    (void)members, (void)own_member;
    return "";
  }

  /// The c10d name, or `redistribute`.
  [[nodiscard]] const char* name() const { return name_; }
  /// What all members must agree on, as the user sees it; empty when checks are off.
  [[nodiscard]] const std::string& arguments() const { return arguments_; }
  [[nodiscard]] const Claims& claims() const { return claims_; }
  /// `all_reduce(f32[4] sum)`.
  [[nodiscard]] std::string call() const;

 private:
  const char* name_;
  std::string arguments_;
  Claims claims_;
};

/// One operation: filled by its members one after the other.
struct ThreadSlot {
  explicit ThreadSlot(std::span<const std::int64_t> member_ranks)
      : ranks(member_ranks.begin(), member_ranks.end()),
        ops(member_ranks.size()),
        members(member_ranks.size(), nullptr),
        taken(member_ranks.size(), false) {}

  void put(std::size_t member, std::shared_ptr<ThreadOp> op) {
    members[member] = op.get();
    ops[member] = std::move(op);
    ++arrived;
  }

  /// All is done. Lets go of the members' tensors at once: a member that comes for its result much
  /// later must not keep the others' memory.
  void finish() {
    ops.assign(ops.size(), nullptr);
    done = true;
  }

  /// The members' global ranks.
  std::vector<std::int64_t> ranks;
  std::vector<std::shared_ptr<ThreadOp>> ops;
  /// The same as plain pointers, for `ThreadOp::run`.
  std::vector<ThreadOp*> members;
  std::size_t arrived = 0;
  /// Set when all have arrived and whoever waits takes shares of the work until none are left;
  /// otherwise the last one to arrive has done everything. Like `done`, written under the lock and
  /// looked at without it by ranks that wait awake.
  std::atomic<bool> shared_out = false;
  std::int64_t phase = 0;
  /// Which members' shares of the phase somebody has taken, and how many of them are done.
  std::vector<bool> taken;
  std::size_t done_in_phase = 0;
  /// Set when somebody's share threw: then it is never done.
  bool failed = false;
  std::atomic<bool> done = false;
};

/// What the members of a group share.
struct ThreadGroup {
  ThreadGroup(std::vector<std::int64_t> member_ranks, std::string group_name)
      : ranks(std::move(member_ranks)), name(std::move(group_name)) {}

  std::vector<std::int64_t> ranks;
  std::string name;
  /// Collectives that some member has not reached yet; the first has number `first_slot`.
  std::deque<std::shared_ptr<ThreadSlot>> slots;
  std::uint64_t first_slot = 0;
  /// Sends and receives that have not met yet, by sender, receiver and tag; all in a queue wait for
  /// the same side.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>,
           std::deque<std::shared_ptr<ThreadSlot>>>
      pairs;
  /// Why the group can no longer be used; empty while it can.
  std::string failure;
};

/// Where the ranks of a world of threads meet. Everything is guarded by one lock, which is never
/// held while data is copied.
///
/// The hub knows who is blocked on what. When a rank waits for another that has returned or failed, or
/// when ranks wait for each other, the waiting ones fail at once, whatever the others do.
class ThreadHub {
 public:
  explicit ThreadHub(std::int64_t size);

  /// Finds or makes the group of these ranks. All members get the same one.
  std::shared_ptr<ThreadGroup> group(const std::vector<std::int64_t>& ranks,
                                     const std::string& name);

  /// Adds a member's part of collective number `number` of a group. Who comes last compares what
  /// the members call and, if it is little, does all of the work.
  std::shared_ptr<ThreadSlot> post(ThreadGroup& group, std::uint64_t number, std::size_t member,
                                   std::shared_ptr<ThreadOp> op);

  /// Adds a send (member 0) or a receive (member 1) of a message between two members.
  struct Route {
    std::int64_t from;
    std::int64_t to;
    std::int64_t tag;
  };
  std::shared_ptr<ThreadSlot> post_pair(ThreadGroup& group, const Route& route, std::size_t member,
                                        std::shared_ptr<ThreadOp> op);

  /// Blocks until the operation is done, and helps with it where there is much to do. Throws
  /// `CommError` when it fails or takes longer than `timeout`.
  void wait(ThreadGroup& group, const std::shared_ptr<ThreadSlot>& slot, std::size_t member,
            std::chrono::milliseconds timeout);
  [[nodiscard]] static bool is_done(const ThreadSlot& slot) { return slot.done; }

  /// The rank's function returned.
  void finish(std::int64_t rank);
  /// The rank's function threw.
  void fail(std::int64_t rank, const std::string& what);

 private:
  enum class Status { running, blocked, returned, failed };

  struct Rank {
    Status status = Status::running;
    std::condition_variable wake;
    /// While blocked: on what.
    ThreadGroup* group = nullptr;
    std::shared_ptr<ThreadSlot> slot;
    /// When failed: why.
    std::string failure;
  };

  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] Rank& rank_of(std::int64_t number) {
    return ranks_[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] const Rank& rank_of(std::int64_t number) const {
    return ranks_[static_cast<std::size_t>(number)];
  }
  [[noreturn]] void throw_failure(const ThreadGroup& group, const ThreadOp& op, std::int64_t rank,
                                  Clock::duration elapsed) const;
  void check_usable(const ThreadGroup& group, const ThreadOp& op, std::int64_t rank) const;
  void complete(ThreadGroup& group, const std::shared_ptr<ThreadSlot>& slot, Lock& lock);
  void run_everything(ThreadGroup& group, ThreadSlot& slot, Lock& lock);
  void run_share(ThreadGroup& group, ThreadSlot& slot, std::size_t share, Lock& lock);
  void block(ThreadGroup& group, const std::shared_ptr<ThreadSlot>& slot, std::int64_t rank,
             Lock& lock, Clock::time_point deadline);
  void unblock(Rank& rank);
  void wake_waiters(const ThreadSlot& slot);
  void fail_group(ThreadGroup& group, const std::string& why);
  void end_rank(std::int64_t rank, Status status, const std::string& why);
  void fail_if_hopeless(const Rank& rank);
  void fail_if_in_circle(std::int64_t rank);
  [[nodiscard]] std::vector<std::int64_t> blocked_among_missing(std::int64_t rank) const;
  [[nodiscard]] std::string find_mismatch(const ThreadSlot& slot) const;
  [[nodiscard]] std::string why_hopeless(const ThreadSlot& slot) const;
  [[nodiscard]] std::vector<std::int64_t> missing_ranks(const ThreadSlot& slot) const;

  std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::map<std::vector<std::int64_t>, std::shared_ptr<ThreadGroup>> groups_;
};

}  // namespace tessera::detail
