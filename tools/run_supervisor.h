#pragma once

#include "run_arguments.h"

namespace tessera::tools {

/// Starts the ranks, copies their output and waits for them; returns the exit code. Nothing that it
/// started is left when it returns or throws.
[[nodiscard]] int run_ranks_as_processes(const RunArguments& arguments);

}  // namespace tessera::tools
