#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/c10d/deadlock.h"
#include "tessera/comm/c10d/process_identity.h"
#include "tessera/comm/c10d/status_board.h"

namespace tessera::detail {

/// What a rank of a world of processes knows about the others and tells them, shared by its groups.
/// Groups are told apart by their keys, see `group_key`. Messages between two members are counted apart,
/// by the key followed by from whom, to whom, the tag, and whose count it is.
class Peers {
 public:
  /// `processes` by rank.
  Peers(std::int64_t rank, std::vector<ProcessIdentity> processes,
        std::shared_ptr<StatusBoard> board);

  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(processes_.size()); }
  [[nodiscard]] const ProcessIdentity& process(std::int64_t rank) const;
  [[nodiscard]] StatusBoard& board() const { return *board_; }

  /// Counts the calls that this rank begins, and returns their number.
  std::int64_t count_call(const std::string& key);
  /// The same for messages; 0, which is no number, when there are too many kinds of them.
  std::int64_t count_message(const std::string& key);

  /// How long to wait before telling the others: half a second, and twice as long after every time that
  /// nothing was wrong. So a program whose ranks often wait for long does not tell of it all the time, to
  /// ranks that may be too busy to listen.
  [[nodiscard]] std::chrono::milliseconds suspicion() const;
  /// Tells the others that this rank has been waiting for a while, and what for.
  void post_waiting(RankStatus status);
  /// Tells them that it waits no longer.
  void post_going_on();
  /// Whether the wait that was posted last is part of a deadlock, see Note [Deadlocks between
  /// processes]: that which others have found, or one that is found now. If so whatever is posted from
  /// now on tells the others of it. Looks at all ranks, more seldom where they are many.
  [[nodiscard]] std::optional<std::string> find_deadlock();
  /// Tells the others that a group failed on this rank.
  void post_failed(RankStatus status, const std::string& group_key);
  /// Tells the others that this rank will not come any more. Nothing is posted after that: results that are
  /// waited for even later must not hide it.
  void post_left(const std::string& reason);
  /// Why the first group failed; empty while none has.
  [[nodiscard]] std::string first_failure() const;

  /// Waits until every other rank has left or ended, at most so long; and at most `unseen_limit`
  /// for those on other machines, which may have ended unseen.
  void wait_until_alone(std::chrono::milliseconds limit, std::chrono::milliseconds unseen_limit);

 private:
  /// What is posted with every status. Called with the lock.
  [[nodiscard]] RankStatus with_counts(RankStatus status) const;
  /// Posts it with every status from now on, and returns its text. Called with the lock.
  std::string note_deadlock(const Deadlock& deadlock);
  /// What all ranks have posted, as far as it is known, and what this one has.
  [[nodiscard]] std::vector<std::optional<RankStatus>> all_statuses() const;

  std::int64_t rank_;
  std::vector<ProcessIdentity> processes_;
  std::shared_ptr<StatusBoard> board_;
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> calls_;
  std::size_t kinds_of_messages_ = 0;
  /// What was posted last; and how many waits have been.
  RankStatus waiting_;
  std::int64_t waits_ = 0;
  std::chrono::milliseconds suspicion_{500};
  bool has_left_ = false;
  std::chrono::steady_clock::time_point next_roll_;
  std::string deadlock_;
  std::string failed_groups_;
  std::string first_failure_;
};

/// The ranks, as `{0,2}`; where that would be long, how many they are and a hash of it.
[[nodiscard]] std::string group_key(const std::vector<std::int64_t>& ranks);

/// Whether a group is among those of `RankStatus::failed_groups`.
[[nodiscard]] bool names_group(const std::string& failed_groups, const std::string& group_key);

}  // namespace tessera::detail
