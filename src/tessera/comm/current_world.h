#pragma once

#include <memory>

namespace tessera::detail {

class WorldState;

/// Makes `world` the `World::current()` of all threads that are no ranks themselves: for programs in
/// which no function of ours runs all the time that the process is a rank. Null takes it back.
void set_process_world(std::shared_ptr<WorldState> world);

}  // namespace tessera::detail
