#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/world.h"
#include "tessera/layout/layout.h"

namespace tessera::test {

/// A redistribution that is tried out.
struct MoveCase {
  Layout from;
  Layout to;
  at::ScalarType dtype = at::kFloat;
  bool strided = false;
  std::int64_t staging_budget = std::numeric_limits<std::int64_t>::max();
};

/// How cases are run.
struct MoveOptions {
  /// Through packed buffers and the collectives of the transport, as between processes, instead of
  /// straight from memory to memory.
  bool indirect = false;
  /// Asynchronously, so many at a time; 1 is one after the other.
  std::size_t in_flight = 1;
};

/// Redistributes on `ranks` threads, and compares what every rank gets with its slice of the whole
/// tensor; contributions are reduced from what the ranks got.
void expect_moves(std::int64_t ranks, const std::vector<MoveCase>& cases,
                  const MoveOptions& options = {});

/// Returns what a rank has before a case: NaNs, both zeros and other bits where nothing is reduced,
/// else values that are exact in every dtype, other ones for every contribution.
[[nodiscard]] at::Tensor local_input(const MoveCase& test, std::int64_t rank);

/// Returns the part of a whole tensor, found index by index.
[[nodiscard]] at::Tensor part_of(const at::Tensor& whole, const Part& part);

/// Which pairs `every_pair` makes.
struct PairOptions {
  at::ScalarType dtype = at::kFloat;
  /// Strided shards and another Partial too, not only R, P(sum) and S.
  bool all_kinds = true;
  ReduceOp other_op = ReduceOp::max;
  std::int64_t split_factor = 2;
  /// Of many pairs only each so manieth, beginning with this one.
  std::size_t every = 1;
  std::size_t first = 0;
  std::int64_t staging_budget = std::numeric_limits<std::int64_t>::max();
  /// Every other pair begins with a tensor that is not contiguous: the odd ones, or the even ones.
  std::size_t strided_phase = 0;
};

/// Returns the pairs of placements of a tensor on two meshes, or on the same one, that a
/// redistribution is defined for; some of them under ThreadSanitizer.
[[nodiscard]] std::vector<MoveCase> every_pair(const MeshShape& from, const MeshShape& to,
                                               const Shape& shape, const PairOptions& options = {});

/// Returns whether a redistribution is defined on the same ranks.
[[nodiscard]] bool is_possible(const Placements& from, const Placements& to);

/// Makes all groups of a mesh's dims, and of the whole mesh, and of all ranks, exchange no memory
/// directly from now on. For the calling rank, which must not have used them yet.
void make_indirect(const World& world, const MeshShape& mesh);
/// The same for the groups of all sets of ranks, each in ascending order.
void make_all_indirect(const World& world);

}  // namespace tessera::test
