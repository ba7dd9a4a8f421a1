#include "tessera/comm/threads/thread_hub.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <thread>
#include <typeinfo>

#include "tessera/base/check.h"
#include "tessera/base/concat.h"
#include "tessera/comm/wait_circle.h"
#include "tessera/comm/waiting.h"

namespace tessera::detail {
namespace {

/// From this size on it pays that every member copies its own share instead of one doing it all:
/// waking everybody twice costs about as long as copying this many bytes.
constexpr std::int64_t kShareOutBytes = 256 * 1024;

std::chrono::milliseconds to_ms(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration);
}

/// How often, and how long, a rank offers its core to the others before it goes to sleep. What the
/// others do until they come is often shorter than falling asleep and being woken, which takes a
/// trip through the kernel on both sides; when it is longer, this is all that is lost.
constexpr int kYields = 50;
constexpr std::chrono::microseconds kLongestAwake{50};

/// Waits awake for a while until there is something to do.
void wait_awake(const ThreadSlot& slot, std::chrono::steady_clock::time_point begin) {
  for (int i = 0; i < kYields && !slot.done && !slot.shared_out; ++i) {
    // With more ranks than cores, others may keep the core for long.
    if (std::chrono::steady_clock::now() - begin > kLongestAwake) return;
    std::this_thread::yield();
  }
}

bool is_worth_sharing(const ThreadSlot& slot) {
  return std::any_of(slot.members.begin(), slot.members.end(),
                     [](const ThreadOp* op) { return op->bytes() >= kShareOutBytes; });
}

/// A share of the phase that nobody has taken, the member's own first.
std::optional<std::size_t> free_share(const ThreadSlot& slot, std::size_t member) {
  for (std::size_t i = 0; i < slot.ops.size(); ++i) {
    const std::size_t share = (member + i) % slot.ops.size();
    if (!slot.taken[share]) return share;
  }
  return std::nullopt;
}

std::string name_ranks(const std::vector<std::int64_t>& ranks) {
  return concat(ranks.size() == 1 ? "rank " : "ranks ", joined(ranks));
}

}  // namespace

std::string ThreadOp::call() const { return concat(name_, '(', arguments_, ')'); }

ThreadHub::ThreadHub(std::int64_t size) : ranks_(static_cast<std::size_t>(size)) {}

std::shared_ptr<ThreadGroup> ThreadHub::group(const std::vector<std::int64_t>& ranks,
                                              const std::string& name) {
  const Lock lock(mutex_);
  auto& found = groups_[ranks];
  if (found == nullptr) found = std::make_shared<ThreadGroup>(ranks, name);
  return found;
}

std::shared_ptr<ThreadSlot> ThreadHub::post(ThreadGroup& group, std::uint64_t number,
                                            std::size_t member, std::shared_ptr<ThreadOp> op) {
  Lock lock(mutex_);
  check_usable(group, *op, group.ranks[member]);
  while (group.first_slot + group.slots.size() <= number) {
    group.slots.push_back(std::make_shared<ThreadSlot>(group.ranks));
  }
  const auto slot = group.slots[static_cast<std::size_t>(number - group.first_slot)];
  slot->put(member, std::move(op));
  if (slot->arrived == slot->ops.size()) {
    // Members come in order, so what is complete is always in front.
    group.slots.pop_front();
    ++group.first_slot;
    complete(group, slot, lock);
  }
  return slot;
}

std::shared_ptr<ThreadSlot> ThreadHub::post_pair(ThreadGroup& group, const Route& route,
                                                 std::size_t member, std::shared_ptr<ThreadOp> op) {
  Lock lock(mutex_);
  const std::array<std::int64_t, 2> ranks = {route.from, route.to};
  check_usable(group, *op, ranks[member]);
  auto& queue = group.pairs[{route.from, route.to, route.tag}];
  const bool met = !queue.empty() && queue.front()->ops[member] == nullptr;
  if (!met) queue.push_back(std::make_shared<ThreadSlot>(ranks));
  const auto slot = met ? queue.front() : queue.back();
  slot->put(member, std::move(op));
  if (met) {
    queue.pop_front();
    complete(group, slot, lock);
  }
  return slot;
}

/// All members have arrived: compares what they call, then gets the work done or shared out.
void ThreadHub::complete(ThreadGroup& group, const std::shared_ptr<ThreadSlot>& slot, Lock& lock) {
  const std::string mismatch = find_mismatch(*slot);
  if (!mismatch.empty()) {
    fail_group(group, mismatch);
    return;  // Seen by `wait`, like everybody else's failure.
  }
  if (is_worth_sharing(*slot)) {
    slot->shared_out = true;
  } else {
    run_everything(group, *slot, lock);
  }
  wake_waiters(*slot);
}

void ThreadHub::run_everything(ThreadGroup& group, ThreadSlot& slot, Lock& lock) {
  lock.unlock();
  std::string failure;
  try {
    for (std::int64_t phase = 0; phase < slot.members.front()->phases(); ++phase) {
      for (auto* op : slot.members) op->run(slot.members, phase);
    }
  } catch (const std::exception& error) {
    failure = error.what();
  }
  lock.lock();
  if (failure.empty()) {
    slot.finish();
  } else {
    fail_group(group, failure);
  }
}

void ThreadHub::run_share(ThreadGroup& group, ThreadSlot& slot, std::size_t share, Lock& lock) {
  slot.taken[share] = true;
  lock.unlock();
  std::string failure;
  try {
    slot.members[share]->run(slot.members, slot.phase);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  lock.lock();
  if (!failure.empty()) {
    slot.failed = true;
    fail_group(group, failure);
  }
  if (++slot.done_in_phase < slot.ops.size() || slot.failed) return;
  slot.done_in_phase = 0;
  slot.taken.assign(slot.taken.size(), false);
  ++slot.phase;
  if (slot.phase == slot.ops.front()->phases()) slot.finish();
  wake_waiters(slot);
}

void ThreadHub::wait(ThreadGroup& group, const std::shared_ptr<ThreadSlot>& slot,
                     std::size_t member, std::chrono::milliseconds timeout) {
  if (slot->done) return;
  const auto begin = Clock::now();
  const Waiting waiting;
  wait_awake(*slot, begin);
  if (slot->done) return;
  Lock lock(mutex_);
  const std::int64_t rank = slot->ranks[member];
  while (!slot->done) {
    if (!group.failure.empty()) {
      throw_failure(group, *slot->ops[member], rank, Clock::now() - begin);
    }
    const auto share = slot->shared_out ? free_share(*slot, member) : std::nullopt;
    if (share) {
      run_share(group, *slot, *share, lock);
    } else {
      block(group, slot, rank, lock, begin + timeout);
    }
  }
}

void ThreadHub::block(ThreadGroup& group, const std::shared_ptr<ThreadSlot>& slot,
                      std::int64_t rank, Lock& lock, Clock::time_point deadline) {
  Rank& own = rank_of(rank);
  TESSERA_CHECK(own.status != Status::blocked, "wait: called on rank ", rank,
                " while another thread of that rank waits on group ", own.group->name,
                "; a rank communicates from one thread at a time: let the other one finish first");
  own.status = Status::blocked;
  own.group = &group;
  own.slot = slot;
  fail_if_hopeless(own);
  fail_if_in_circle(rank);
  const bool woken =
      own.wake.wait_until(lock, deadline, [&] { return own.status == Status::running; });
  if (woken) return;
  unblock(own);
  const auto missing = missing_ranks(*slot);
  fail_group(group, missing.empty() ? std::string("the copying did not end in time")
                                    : concat(name_ranks(missing), " did not call it in time"));
}

void ThreadHub::unblock(Rank& rank) {
  rank.status = Status::running;
  rank.slot.reset();
  rank.wake.notify_one();
}

void ThreadHub::wake_waiters(const ThreadSlot& slot) {
  for (const auto member : slot.ranks) {
    Rank& rank = rank_of(member);
    if (rank.status == Status::blocked && rank.slot.get() == &slot) unblock(rank);
  }
}

/// Makes a group unusable and wakes everybody who waits in it.
void ThreadHub::fail_group(ThreadGroup& group, const std::string& why) {
  if (group.failure.empty()) group.failure = why;
  for (auto& rank : ranks_) {
    if (rank.status == Status::blocked && rank.group == &group) unblock(rank);
  }
}

void ThreadHub::finish(std::int64_t rank) { end_rank(rank, Status::returned, ""); }

void ThreadHub::fail(std::int64_t rank, const std::string& what) {
  end_rank(rank, Status::failed, what);
}

void ThreadHub::end_rank(std::int64_t rank, Status status, const std::string& why) {
  const Lock lock(mutex_);
  Rank& own = rank_of(rank);
  own.status = status;
  own.failure = why;
  for (const auto& other : ranks_) {
    if (other.status == Status::blocked) fail_if_hopeless(other);
  }
}

/// Fails the wait of a blocked rank when it is for one that can no longer come.
void ThreadHub::fail_if_hopeless(const Rank& rank) {
  const std::string why = why_hopeless(*rank.slot);
  if (!why.empty()) fail_group(*rank.group, why);
}

/// Fails the waits of a rank that has just blocked and of those that it is in a circle with, if any: see
/// Note [Ranks that wait for each other]. Ranks that wait awake may find that they need not block, and who
/// has begun its part of a call and waits elsewhere is not missing.
void ThreadHub::fail_if_in_circle(std::int64_t rank) {
  if (rank_of(rank).status != Status::blocked) return;
  const auto circle =
      find_wait_circle(rank, [&](std::int64_t each) { return blocked_among_missing(each); });
  if (circle.empty()) return;
  const std::string why = describe_wait_circle(circle, [&](std::int64_t each) {
    const Rank& waiting = rank_of(each);
    const auto& members = waiting.slot->ranks;
    const auto place = std::find(members.begin(), members.end(), each) - members.begin();
    return WaitingCall{waiting.slot->members[static_cast<std::size_t>(place)]->call(),
                       waiting.group->name};
  });
  for (const auto each : circle) fail_group(*rank_of(each).group, why);
}

/// Whom a blocked rank waits for, of those that are blocked themselves.
std::vector<std::int64_t> ThreadHub::blocked_among_missing(std::int64_t rank) const {
  const ThreadSlot& slot = *rank_of(rank).slot;
  std::vector<std::int64_t> blocked;
  for (std::size_t i = 0; i < slot.ops.size(); ++i) {
    const bool is_missing = slot.ops[i] == nullptr;
    if (is_missing && rank_of(slot.ranks[i]).status == Status::blocked) {
      blocked.push_back(slot.ranks[i]);
    }
  }
  return blocked;
}

std::vector<std::int64_t> ThreadHub::missing_ranks(const ThreadSlot& slot) const {
  std::vector<std::int64_t> missing;
  for (std::size_t i = 0; i < slot.ops.size(); ++i) {
    if (slot.ops[i] == nullptr) missing.push_back(slot.ranks[i]);
  }
  return missing;
}

std::string ThreadHub::why_hopeless(const ThreadSlot& slot) const {
  for (std::size_t i = 0; i < slot.ops.size(); ++i) {
    if (slot.ops[i] != nullptr) continue;
    const Rank& rank = rank_of(slot.ranks[i]);
    if (rank.status == Status::failed) {
      return concat("rank ", slot.ranks[i], " failed: ", rank.failure);
    }
    if (rank.status == Status::returned) {
      return concat("rank ", slot.ranks[i], " has returned without calling it");
    }
  }
  return "";
}

std::string ThreadHub::find_mismatch(const ThreadSlot& slot) const {
  const ThreadOp& first = *slot.ops.front();
  for (std::size_t i = 1; i < slot.ops.size(); ++i) {
    const ThreadOp& other = *slot.ops[i];
    const bool is_pair = std::string_view(first.name()) == "send";
    const bool same_kind = typeid(first) == typeid(other) &&
                           (is_pair || std::string_view(first.name()) == other.name());
    if (first.claims() != other.claims()) {
      return concat("the ranks do not agree: rank ", slot.ranks.front(), " calls ", first.call(),
                    first.claims().to_string(), "; rank ", slot.ranks[i], " calls ", other.call(),
                    other.claims().to_string(), advice_on_claims());
    }
    if (!same_kind || first.arguments() != other.arguments()) {
      return concat("the ranks do not agree: rank ", slot.ranks.front(), " calls ", first.call(),
                    ", rank ", slot.ranks[i], " calls ", other.call());
    }
  }
  for (std::size_t i = 0; i < slot.members.size(); ++i) {
    const std::string conflict = slot.members[i]->conflict(slot.members, i);
    if (!conflict.empty()) return concat("the ranks do not agree: ", conflict);
  }
  return "";
}

void ThreadHub::check_usable(const ThreadGroup& group, const ThreadOp& op,
                             std::int64_t rank) const {
  if (group.failure.empty()) return;
  throw CommError(concat("the group cannot be used any more since it failed: ", group.failure),
                  {rank, group.name, op.name(), std::chrono::milliseconds(0)});
}

void ThreadHub::throw_failure(const ThreadGroup& group, const ThreadOp& op, std::int64_t rank,
                              Clock::duration elapsed) const {
  throw CommError(group.failure, {rank, group.name, op.name(), to_ms(elapsed)});
}

}  // namespace tessera::detail
