#pragma once

#include <cstdint>

#include "tessera/comm/world.h"

namespace tessera::test {

/// Does one checked operation of each kind, as a program in the middle of its work.
void work_once(const Group& group, std::int64_t round);
/// Prints `ready, rank 1 is process 4711`.
void report_ready(const World& world);
/// Reports to be ready, and works until something fails.
void work_forever(World& world);

}  // namespace tessera::test
