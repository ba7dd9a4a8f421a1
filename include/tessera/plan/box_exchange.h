#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/layout/box_map.h"
#include "tessera/plan/step.h"

namespace tessera {

/// One rank's part of a move from one map of boxes to another: every rank receives exactly what it
/// needs and does not hold, which no plan can undercut.
struct BoxExchange {
  /// The messages; see `RankStep`. Their boxes are parts of the rank's pieces, counted from the
  /// piece's own first element. The shapes are those of the rank's first pieces, so a step between
  /// maps with at most one piece per rank is one that any engine executes.
  RankStep step;
  /// `pieces[message.first_box + i]` is the piece that box i of a message is a part of: of those
  /// that the rank holds for a send, of those that it gets for a receive.
  std::vector<std::size_t> pieces;
  /// Elements that go to, and come from, other ranks.
  std::int64_t sent_numel = 0;
  std::int64_t received_numel = 0;
};

/// Returns `rank`'s part of the move.
///
/// Computed by each rank alone from the two maps, and the parts of all ranks agree. A box that
/// several ranks hold comes from the receiver's own copy if it has one, otherwise from the holders
/// in turn. Work: the rank's own boxes times all boxes.
///
/// Throws `InvalidArgument` unless both maps are of one shape and the boxes of `from`, copies counted
/// once, have as many elements as the tensor. They must not overlap otherwise.
[[nodiscard]] BoxExchange plan_box_exchange(const BoxMap& from, const BoxMap& to,
                                            std::int64_t rank);

/// True when some rank needs what it does not hold. The same on all ranks.
[[nodiscard]] bool needs_traffic(const BoxMap& from, const BoxMap& to);

}  // namespace tessera
