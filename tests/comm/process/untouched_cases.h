#pragma once

#include "tessera/comm/world.h"

namespace tessera::test {

/// Members announce different calls and then carry them out, every operation of a transport with little
/// and with much data: expects an error on all of them, and that nothing was written to what the
/// operation would have written to. For four ranks, all of which call it; each case fails a group.
void check_outputs_untouched(World& world);

}  // namespace tessera::test
