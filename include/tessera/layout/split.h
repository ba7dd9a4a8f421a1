#pragma once

#include <cstdint>

#include "tessera/layout/index_set.h"

namespace tessera {

/// One cut of a tensor dimension by one mesh dimension: the dimension is cut into `pieces`, every
/// piece is chunked `count` ways, and index i along the mesh dimension gets chunk i of each piece.
///
/// `Shard` is the case of one piece, `StridedShard` of several: one formula serves both. Cuts nest:
/// the next one applies to what this one left, in its local order.
struct Split {
  std::int64_t mesh_dim = 0;
  std::int64_t count = 1;
  std::int64_t pieces = 1;

  bool operator==(const Split&) const = default;

  /// Where an index falls: which chunk, at which local position in it, and for how many indices
  /// from there on both stay in step.
  struct Place {
    std::int64_t chunk;
    std::int64_t local;
    std::int64_t run;
  };

  /// Returns how many of `length` indices chunk `chunk` gets; chunk 0 gets the most.
  [[nodiscard]] std::int64_t local_size(std::int64_t length, std::int64_t chunk) const;

  /// Returns where `index` falls, in constant time. Needs 0 <= index < length.
  [[nodiscard]] Place locate(std::int64_t length, std::int64_t index) const;

  /// Returns what chunk `chunk` gets of `owned`.
  [[nodiscard]] IndexSet take(const IndexSet& owned, std::int64_t chunk) const;
};

}  // namespace tessera
