#pragma once

#include "tessera/comm/world.h"

namespace tessera::bench {

/// Measures 64 MB redistributions of 4 ranks beside a memcpy or the engine's own collective, into new
/// memory and into used, and prints a table on rank 0. `only` is a regular expression for the rows; all when empty.
void measure_large_moves(const World& world, const std::string& only);

/// The same for what a small redistribution, and one that moves nothing, takes.
void measure_latency(const World& world, const std::string& only);

/// Measures what comparing the ranks' calls takes in a redistribution of 8x8 elements, with processes:
/// in this world, and in turns with it in one that does not compare them.
void measure_check(const World& world, const std::string& only);

/// One figure for a world: seconds per redistribution of 8x8 elements; the same on all ranks.
[[nodiscard]] double small_redistribution_seconds(const World& world);

}  // namespace tessera::bench
