#pragma once

#include <cstdint>

#include "tessera/comm/world.h"

namespace tessera::test {

// Cases of `redistribute_all` for all ranks of a world to run together, threads or processes.

/// Lists of DTensors with random shapes, dtypes, meshes and placements: values, gradients and second
/// derivatives as `redistribute` gives them one by one. The seeds are [first, first + count).
void check_random_lists(World& world, std::uint64_t first, std::uint64_t count);

/// Many small parameters go forth, and their gradients back, in one collective each.
void check_one_collective(World& world);

}  // namespace tessera::test
