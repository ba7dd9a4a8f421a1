#include "tessera/layout/split.h"

#include <algorithm>

#include "tessera/base/divide.h"

namespace tessera {
namespace {

/// The size of chunk `chunk` when `length` is cut `count` ways.
std::int64_t chunk_size(std::int64_t length, std::int64_t count, std::int64_t chunk) {
  const std::int64_t step = ceil_divide(length, count);
  return std::clamp<std::int64_t>(length - chunk * step, 0, step);
}

}  // namespace

std::int64_t Split::local_size(std::int64_t length, std::int64_t chunk) const {
  if (pieces == 1) return chunk_size(length, count, chunk);
  // All pieces are `step` long but for one short one behind them; the rest are empty.
  const std::int64_t step = ceil_divide(length, pieces);
  if (step == 0) return 0;
  return length / step * chunk_size(step, count, chunk) + chunk_size(length % step, count, chunk);
}

Split::Place Split::locate(std::int64_t length, std::int64_t index) const {
  const std::int64_t piece_step = ceil_divide(length, pieces);
  const std::int64_t piece = index / piece_step;
  const std::int64_t in_piece = index - piece * piece_step;
  const std::int64_t piece_size = std::min(piece_step, length - piece * piece_step);
  const std::int64_t step = ceil_divide(piece_size, count);
  const std::int64_t chunk = in_piece / step;
  const std::int64_t in_chunk = in_piece - chunk * step;
  const std::int64_t size = std::min(step, piece_size - chunk * step);
  return {chunk, piece * chunk_size(piece_step, count, chunk) + in_chunk, size - in_chunk};
}

IndexSet Split::take(const IndexSet& owned, std::int64_t chunk) const {
  IndexSet result;
  const std::int64_t piece_step = ceil_divide(owned.size(), pieces);
  for (std::int64_t begin = 0; begin < owned.size(); begin += piece_step) {
    const Extent part = chunk_extent(std::min(piece_step, owned.size() - begin), count, chunk);
    const IndexSet chunk_of_piece = owned.slice({begin + part.begin, part.size});
    for (const auto& run : chunk_of_piece.runs()) result.append(run);
  }
  return result;
}

}  // namespace tessera
