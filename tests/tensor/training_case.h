#pragma once

#include "tessera/comm/world.h"

namespace tessera::test {

/// Trains a small network on plain tensors and on DTensors in several parallel styles, on every mesh
/// that the world's ranks can form, and expects the same losses. For threads and processes.
void check_training(World& world);

/// Moves DTensors between layouts, asynchronously too, forth and back with gradients, and draws random
/// numbers; expects what follows from the whole.
void check_moves(World& world);

}  // namespace tessera::test
