#pragma once

#include "tessera/comm/world.h"

namespace tessera::test {

// Train a small network in a parallel style on every mesh that the world's ranks can form, and expect
// the losses and parameters of a plain one. For threads and processes.

/// Hooked modules with plain tensors between them.
void check_plain_activations(World& world);
/// Unmodified modules on DTensors.
void check_distributed_activations(World& world);
/// Hooked modules, sequences cut between them.
void check_sequence_parallel(World& world);
/// Unmodified modules, a loss over cut classes, and clipped gradients.
void check_loss_and_clipping(World& world);

}  // namespace tessera::test
