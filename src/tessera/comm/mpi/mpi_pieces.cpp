#include "tessera/comm/mpi/mpi_pieces.h"

#include <algorithm>

namespace tessera::detail {

std::vector<Piece> cut_into_pieces(std::int64_t count, std::int64_t limit) {
  std::vector<Piece> pieces;
  for (std::int64_t begin = 0; begin < count; begin += limit) {
    pieces.push_back({begin, static_cast<int>(std::min(limit, count - begin))});
  }
  return pieces;
}

std::optional<IntLayout> int_layout(std::span<const std::int64_t> counts, std::int64_t limit) {
  IntLayout layout;
  std::int64_t begin = 0;
  for (const auto count : counts) {
    if (count > limit || begin > limit) return std::nullopt;
    layout.counts.push_back(static_cast<int>(count));
    layout.displacements.push_back(static_cast<int>(begin));
    begin += count;
  }
  return layout;
}

}  // namespace tessera::detail
