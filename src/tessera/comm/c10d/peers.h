#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/comm/c10d/process_identity.h"
#include "tessera/comm/c10d/status_board.h"

namespace tessera::detail {

/// What a rank of a world of processes knows about the others and tells them, shared by its groups.
/// Groups are told apart by their ranks, written as `{0,2}`: their keys.
class Peers {
 public:
  /// `processes` by rank.
  Peers(std::int64_t rank, std::vector<ProcessIdentity> processes,
        std::shared_ptr<StatusBoard> board);

  [[nodiscard]] std::int64_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(processes_.size()); }
  [[nodiscard]] const ProcessIdentity& process(std::int64_t rank) const;
  [[nodiscard]] StatusBoard& board() const { return *board_; }

  /// Counts the calls that this rank begins on a group, and returns their number.
  std::int64_t count_call(const std::string& group_key);

  /// Tells the others that this rank has been waiting for long, in call `number` of a group (0 when
  /// it does not count); or that it waits no longer.
  void post_waiting(RankStatus status, const std::string& group_key, std::int64_t number);
  /// Tells the others that a group failed on this rank.
  void post_failed(RankStatus status, const std::string& group_key);
  /// Tells the others that this rank will not come any more.
  void post_left(const std::string& reason);
  /// Why the first group failed; empty while none has.
  [[nodiscard]] std::string first_failure() const;

  /// Waits until every other rank has left or ended, at most so long; and at most `unseen_limit`
  /// for those on other machines, which may have ended unseen.
  void wait_until_alone(std::chrono::milliseconds limit, std::chrono::milliseconds unseen_limit);

 private:
  std::int64_t rank_;
  std::vector<ProcessIdentity> processes_;
  std::shared_ptr<StatusBoard> board_;
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> calls_;
  std::string failed_groups_;
  std::string first_failure_;
};

/// Whether a group is among those of `RankStatus::failed_groups`, and its entry among `calls`.
[[nodiscard]] bool names_group(const std::string& failed_groups, const std::string& group_key);
[[nodiscard]] std::int64_t calls_on(const std::string& calls, const std::string& group_key);

}  // namespace tessera::detail
