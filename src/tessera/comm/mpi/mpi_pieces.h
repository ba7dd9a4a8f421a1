#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace tessera::detail {

/// MPI counts elements in an int; a tensor may have more.
inline constexpr std::int64_t kMostInt = std::numeric_limits<int>::max();

/// The elements [begin, begin + count) of a longer run.
struct Piece {
  std::int64_t begin;
  int count;
  bool operator==(const Piece&) const = default;
};

/// Cuts `count` elements into pieces of at most `limit`, the last one being the shortest: 5 by 2 is
/// {0, 2}, {2, 2}, {4, 1}. None for 0 elements.
[[nodiscard]] std::vector<Piece> cut_into_pieces(std::int64_t count, std::int64_t limit = kMostInt);

/// Parts that lie one behind the other, as MPI's functions with a `v` describe them.
struct IntLayout {
  std::vector<int> counts;
  std::vector<int> displacements;
};

/// Returns the layout of parts of these sizes; nothing when a count or a displacement exceeds
/// `limit`, so that the parts have to be moved in pieces.
[[nodiscard]] std::optional<IntLayout> int_layout(std::span<const std::int64_t> counts,
                                                  std::int64_t limit = kMostInt);

}  // namespace tessera::detail
