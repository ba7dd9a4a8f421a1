#pragma once

#include <functional>

#include "tessera/comm/world.h"

namespace tessera::bench {

/// Runs `fn` with a second world of the same processes and engine, gloo or mpi, in which the ranks'
/// calls are not compared, so that both worlds can take turns in one run.
void in_unchecked_world(const World& world, const std::function<void(const World&)>& fn);

}  // namespace tessera::bench
