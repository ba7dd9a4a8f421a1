#pragma once

#include "tessera/comm/transport.h"

namespace tessera::detail {

/// Makes the transport of a group of one rank: everything is a copy.
[[nodiscard]] std::unique_ptr<Transport> make_solo_transport(const char* engine);

}  // namespace tessera::detail
