#pragma once

#include "tessera/comm/group.h"

namespace tessera::test {

/// Checks the transport's operations where the members announce them first: with data that is small
/// enough to go along with the comparison, with larger data, and with both at once.
void check_announced(const Group& group);

}  // namespace tessera::test
