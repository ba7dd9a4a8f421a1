#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/c10d/status_board.h"

// Note [Deadlocks between processes]
// ----------------------------------
// Ranks that wait for each other in different calls never go on, and a time limit finds that late. So a
// rank that has waited for a while posts what it waits for (a call of some others, by its number) and
// how many calls it has begun itself, and looks for itself among those that wait for it.
//
// What others posted is old news by the time it is read: they may have gone on since then. But what is
// concluded from it holds. The rank that looks, A, knows what it has called, and calls nothing while it
// waits. If B posted that it waits for a call that A has not made, then B waits still, for it cannot go
// on without A; so the calls that B posted are all that it has made. If C posted that it waits for a
// call that B has not made, then C waits still, and so on. Going back like that from A collects ranks
// that wait now, all for A in the end; and if A itself waits for a call that one of those has not made,
// none of them will ever go on (Note [Ranks that wait for each other]). Each step of a circle through A is
// proven by the one behind it, so it does not matter in which direction it was found. Nothing must be read
// twice or at the same time, and nobody is accused because messages are slow.
//
// That a rank cannot go on without all that it waits for is true of the exchange that compares calls,
// and of messages that are compared. Of what follows it is not: the root of a broadcast need not wait
// for anybody. But then all members have been in the comparison and begin what follows right after it,
// before any other call; so nobody is found to wait elsewhere without having begun it. The steps of a
// redistribution are compared once, before the first: all ranks take the others in one order, so that they
// cannot wait for each other. With comparison off there is only the time limit.
//
// A rank also stops waiting when it gives up, and then says so: the group has failed, or the wait is over.

namespace tessera::detail {

/// Ranks that wait for each other.
struct Deadlock {
  /// In a circle, each with the number of its wait. Begins with the lowest rank.
  std::vector<std::pair<std::int64_t, std::int64_t>> waits;
  /// For people.
  std::string text;

  /// Whether this wait of that rank is part of it.
  [[nodiscard]] bool concerns(std::int64_t rank, std::int64_t wait) const;
};

/// As text, and back; nothing for an empty one.
[[nodiscard]] std::string encode(const Deadlock& deadlock);
[[nodiscard]] std::optional<Deadlock> decode_deadlock(const std::string& text);

/// Finds ranks that the calling one is in a circle with, given what all posted, by rank; that of the
/// calling one must be true now, the others' may be old. Nothing when there is no such circle.
[[nodiscard]] std::optional<Deadlock> find_deadlock(
    std::int64_t rank, std::span<const std::optional<RankStatus>> statuses);

/// An entry of `RankStatus::calls` that says that not all messages were counted.
inline constexpr const char* kUncounted = "uncounted messages";

/// The entry of a key in `RankStatus::calls`; 0 when it has none, nothing when that means nothing: it
/// is of a message, and not all were counted.
[[nodiscard]] std::optional<std::int64_t> calls_on(const std::string& calls,
                                                   const std::string& key);

}  // namespace tessera::detail
