#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/c10d/peers.h"

namespace tessera::detail {

/// One call of an operation.
struct WatchedCall {
  /// The c10d name; a literal.
  const char* op = "";
  /// As the user sees them; empty when checks are off.
  std::string arguments;
  /// The only rank that it waits for; otherwise it waits for all members.
  std::optional<std::int64_t> peer = std::nullopt;
  /// What the peer counts its side of the message by; otherwise calls are counted by the group.
  std::string peer_key = {};
  /// How many such calls were begun, this one included; 0 when it does not count.
  std::int64_t number = 0;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();

  /// `all_reduce(f32[4] sum)`.
  [[nodiscard]] std::string to_string() const;
};

/// A message between two members.
struct WatchedMessage {
  bool is_send = false;
  /// The other one's rank.
  std::int64_t peer = 0;
  std::int64_t tag = 0;
  /// Both sides are compared first, so that neither can go on without the other.
  bool is_compared = false;
};

/// Watches the members of a group while calls wait for them, and finds out who is to blame when one
/// fails. A group that failed stays failed.
class GroupWatch {
 public:
  /// `is_compared` when calls are: see Note [Deadlocks between processes].
  GroupWatch(std::string name, std::vector<std::int64_t> ranks, std::chrono::milliseconds timeout,
             bool is_compared, std::shared_ptr<Peers> peers);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<std::int64_t>& ranks() const { return ranks_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  [[nodiscard]] bool has_failed() const;

  /// Counts a call that all members make. Throws `CommError` when the group has failed before.
  [[nodiscard]] WatchedCall begin(const char* op, std::string arguments = {});
  /// The same for one side of a message.
  [[nodiscard]] WatchedCall begin(const WatchedMessage& message, std::string arguments);

  /// To be called from time to time while a call waits. Returns true when somebody cannot come any
  /// more: it has ended, left, or failed in this group, or waits for the calling rank.
  [[nodiscard]] bool is_hopeless(const WatchedCall& call, std::chrono::milliseconds waited);
  /// To be called when a call that `is_hopeless` has seen is complete.
  void end_wait();

  /// The call failed, in the engine's words (none when it only took too long, or was hopeless): finds
  /// out within `kGrace` who is to blame, and throws `CommError`.
  [[noreturn]] void fail(const WatchedCall& call, const std::string& engine_words);
  /// The call failed for a reason that is known.
  [[noreturn]] void fail_because(const WatchedCall& call, const std::string& reason);

  static constexpr std::chrono::milliseconds kGrace{600};
  /// After the time limit, ranks of which nothing was heard get so long to say that they wait too.
  static constexpr std::chrono::milliseconds kAnswer{300};
  /// How often a waiting call should look around.
  static constexpr std::chrono::milliseconds kLookInterval{50};

 private:
  /// What is known about those that a call waits for.
  struct Findings {
    /// Who cannot come, in words.
    std::vector<std::string> culprits;
    /// Set when one of them has ended without a word, which may be on its way.
    bool has_unexplained = false;
    /// Who has not been heard of, in words.
    std::vector<std::string> silent;
    /// Set when the process of one of these cannot be seen from here, so that it may have ended.
    bool has_unseen = false;
    /// Who has failed in this group too; why, where they know it already.
    bool has_fellows = false;
    std::vector<std::string> fellows;
  };

  [[nodiscard]] RankStatus status_in(const WatchedCall& call) const;
  [[nodiscard]] const std::string& key_of(const WatchedCall& call) const;
  [[nodiscard]] Findings look(const WatchedCall& call, bool has_failed) const;
  void look_at(std::int64_t rank, const WatchedCall& call, bool has_failed,
               Findings& findings) const;
  /// `is_overdue` when nothing has happened but that the time limit is up.
  [[nodiscard]] Findings search(const WatchedCall& call, bool is_overdue) const;
  /// Whether somebody cannot come any more.
  [[nodiscard]] bool finds_no_hope(const WatchedCall& call, std::chrono::milliseconds waited);
  [[nodiscard]] std::string explain(const Findings& findings, const WatchedCall& call,
                                    const std::string& engine_words) const;
  void check_usable(const char* op) const;

  std::string name_;
  std::vector<std::int64_t> ranks_;
  std::string key_;
  std::chrono::milliseconds timeout_;
  bool is_compared_;
  std::shared_ptr<Peers> peers_;
  bool posted_waiting_ = false;
  /// What `is_hopeless` has returned last, of a call that still waits.
  bool hopeless_ = false;
  /// In words, once one is found.
  std::string deadlock_;
  mutable std::mutex mutex_;
  std::string failure_;
};

}  // namespace tessera::detail
