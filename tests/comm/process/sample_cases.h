#pragma once

#include <cstdint>

#include "tessera/comm/world.h"

namespace tessera::test {

// Random calls of the public functions, for all ranks of a world of at least two to make together:
// each compares what it got with what follows from everybody's inputs, by expectations of GoogleTest.

/// Redistributions with the seeds [first, first + count): on meshes of one or two dims, between
/// meshes, of tensors of every kind of size, in several dtypes, with staging budgets, async or not.
void check_redistributions(World& world, std::uint64_t first, std::uint64_t count);

/// Every collective, with the seeds [first, first + count).
void check_collectives(World& world, std::uint64_t first, std::uint64_t count);

/// Gradients through collectives, and what `CommDebugMode` counts of them.
void check_gradients_and_traffic(World& world);

}  // namespace tessera::test
