#pragma once

#include <cstdint>

#include "tessera/comm/world.h"

namespace tessera::test {

// Random calls of the public functions, for all ranks of a world of at least two to make together:
// each compares what it got with what follows from everybody's inputs, by expectations of GoogleTest.

/// So many of both on each of three numbers of ranks: 5,010 programs on every engine.
inline constexpr std::uint64_t kRedistributions = 1'400;
inline constexpr std::uint64_t kCollectives = 270;

/// Redistributions with the seeds [first, first + count): on meshes of one or two dims, between
/// meshes, of tensors of every kind of size, in several dtypes, with staging budgets, async or not.
void check_redistributions(World& world, std::uint64_t first, std::uint64_t count);

/// Every collective, with the seeds [first, first + count).
void check_collectives(World& world, std::uint64_t first, std::uint64_t count);

/// Gradients through collectives, and what `CommDebugMode` counts of them.
void check_gradients_and_traffic(World& world);

/// All of these, with seeds that follow from the number of ranks: the same programs on every engine.
void check_all_samples(World& world);

/// On four ranks, the halves of a mesh call redistributions of different shapes that both take two
/// steps: expects an error that shows both on every rank. The group of all ranks has failed then.
void expect_halves_that_differ_are_found(World& world);

/// Rank 1 passes a tensor of the wrong shape to a redistribution: expects it to say so, and the
/// others to learn of it.
void expect_wrong_argument_is_told(World& world);

}  // namespace tessera::test
