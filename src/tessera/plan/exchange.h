#pragma once

#include <cstdint>

#include "tessera/plan/roles.h"
#include "tessera/plan/step.h"

namespace tessera::detail {

/// Returns one rank's messages of the direct exchange between two layouts.
///
/// See Note [Who sends what].
[[nodiscard]] RankStep exchange_messages(const Roles& roles, std::int64_t rank);

/// Returns one rank's part of a step that makes shards (and replicas) into contributions: what it
/// holds stays where it belongs, the identity surrounds it. `to` has the cuts of `from` but for
/// some of the last ones of each tensor dim, all plain.
[[nodiscard]] RankStep fill_messages(const Layout& from, const Layout& to, std::int64_t rank);

}  // namespace tessera::detail
