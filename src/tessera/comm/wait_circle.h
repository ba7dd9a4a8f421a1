#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// Note [Ranks that wait for each other]
// -------------------------------------
// A rank that waits cannot go on without any of those that have not made their part of its call, and it
// calls nothing else meanwhile: a second thread of it is refused. So if those that wait for each other
// form a circle, none of them will ever go on, whatever all others do; and who is in no circle waits in the
// end for one that does not wait, or for a circle. Hence a search for circles is exact. A circle closes when
// the last of its ranks begins to wait, so it is enough that each looks for one through itself.

namespace tessera::detail {

/// Ranks of which each waits for the next one, and the last for the first. Begins with the lowest.
using WaitCircle = std::vector<std::int64_t>;

/// Finds the shortest circle through `rank`; an empty one when there is none. `awaited` says for a rank
/// that waits whom it cannot go on without, of those that wait themselves. It is asked once for each rank
/// that is reached.
[[nodiscard]] WaitCircle find_wait_circle(
    std::int64_t rank, const std::function<std::vector<std::int64_t>(std::int64_t)>& awaited);

/// What a rank waits in.
struct WaitingCall {
  /// `all_reduce(float32[4] sum)`.
  std::string call;
  /// The group's name.
  std::string group;
};

/// `deadlock, nobody can go on: rank 0 waits in barrier() on group world for rank 1; rank 1 waits in ...`.
[[nodiscard]] std::string describe_wait_circle(
    const WaitCircle& circle, const std::function<WaitingCall(std::int64_t)>& call_of);

}  // namespace tessera::detail
