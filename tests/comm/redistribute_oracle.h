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
/// tensor; contributions are reduced from what the ranks got. Where nothing is reduced, bits are
/// compared. Ranks outside of the destination must get nothing, those outside of both meshes what they
/// passed.
void expect_moves(std::int64_t ranks, const std::vector<MoveCase>& cases,
                  const MoveOptions& options = {});

/// Returns what a rank has before a case: NaNs, both zeros and other bits where values are only
/// moved, else numbers that are exact in every dtype; other ones for every contribution.
[[nodiscard]] at::Tensor local_input(const MoveCase& test, std::int64_t rank);

/// Returns the part of a whole tensor, found index by index.
[[nodiscard]] at::Tensor part_of(const at::Tensor& whole, const Part& part);

/// Returns how many cases `expect_moves` has run since it was last asked.
[[nodiscard]] std::int64_t take_moves();

/// Makes all groups of a mesh's dims, and of the whole mesh, and of all ranks, exchange no memory
/// directly from now on. For the calling rank, which must not have used them yet.
void make_indirect(const World& world, const MeshShape& mesh);
/// The same for the groups of all sets of ranks, each in ascending order.
void make_all_indirect(const World& world);

}  // namespace tessera::test
