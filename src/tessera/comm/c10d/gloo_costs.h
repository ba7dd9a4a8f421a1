#pragma once

#include "tessera/plan/cost_model.h"

namespace tessera::detail {

/// What gloo takes, measured on loopback: an operation takes most of a millisecond to begin, so few are
/// better than small ones.
inline constexpr CostModel kGlooCosts{
    .launch_ps = 500'000'000, .message_ps = 50'000'000, .byte_ps = 1'400, .packed_byte_ps = 200};

}  // namespace tessera::detail
