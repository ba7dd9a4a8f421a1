#pragma once

#include "tessera/comm/world.h"

namespace tessera::test {

/// Calls of every function of `tessera::sharded` in which the last rank alone is wrong: all ranks throw,
/// nobody waits, and the group works afterwards. Needs two ranks.
void check_refusals(World& world);

}  // namespace tessera::test
