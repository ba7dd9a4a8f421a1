#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "comm/redistribute_oracle.h"
#include "tessera/layout/layout.h"

namespace tessera::test {

/// Which pairs `every_pair` makes.
struct PairOptions {
  at::ScalarType dtype = at::kFloat;
  /// Strided shards and another Partial too, not only the plain kinds R, P(sum) and S.
  bool all_kinds = true;
  ReduceOp other_op = ReduceOp::max;
  std::int64_t split_factor = 2;
  /// Of many pairs only each so manieth, beginning with this one.
  std::size_t every = 1;
  std::size_t first = 0;
  std::int64_t staging_budget = std::numeric_limits<std::int64_t>::max();
  /// Every pair begins with a contiguous tensor and once more with one that is not. Otherwise they
  /// take turns: the odd pairs begin with one that is not, or the even ones.
  bool both_memories = false;
  std::size_t strided_phase = 0;
};

/// Returns the pairs of placements of a tensor on two meshes, or on the same one, that a
/// redistribution is defined for; a seventh of them under ThreadSanitizer, see `is_left_out`.
[[nodiscard]] std::vector<MoveCase> every_pair(const MeshShape& from, const MeshShape& to,
                                               const Shape& shape, const PairOptions& options = {});

/// Returns whether a redistribution is defined on the same ranks.
[[nodiscard]] bool is_possible(const Placements& from, const Placements& to);

/// Returns whether case number `number` is left out of this run. ThreadSanitizer looks for races, which
/// do not depend on the values moved, and takes ten times as long: there a seventh of the cases is
/// run, scattered over all kinds of placements. `TESSERA_TSAN_PART` says which one, from 0 to 6; 0
/// unless set.
[[nodiscard]] bool is_left_out(std::size_t number);

/// Returns whether a case is in part `part` of the seven that `is_left_out` tells apart.
[[nodiscard]] bool is_in_part(std::size_t number, std::size_t part);

/// Returns which part a value of `TESSERA_TSAN_PART` asks for; null and an empty one ask for 0. Throws
/// `InvalidArgument` for all but 0 to 6.
[[nodiscard]] std::size_t part_named(const char* value);

}  // namespace tessera::test
