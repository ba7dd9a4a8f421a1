#pragma once

#include <memory>

#include "tessera/comm/launch_environment.h"
#include "tessera/comm/world.h"

namespace tessera::detail {

/// The environment of this process.
[[nodiscard]] Variables environment_variables();

/// Makes this process the rank that was decided, of an engine other than threads. Communicates with
/// the other ranks. Throws as the engines do (`c10d/engines.h`).
[[nodiscard]] std::shared_ptr<WorldState> make_process_world(const LaunchDecision& decision,
                                                             const WorldOptions& options);

}  // namespace tessera::detail
