#pragma once

#include "tessera/comm/world.h"

/// Modules sharded by plans, trained beside plain ones: every rank calls the same.
namespace tessera::test {

/// An MLP whose first layer is sharded by columns and whose second by rows: forward, backward, and the
/// parameters after 5 steps of an optimizer that was made before, and of one made after.
void check_sharded_mlp(World& world);

/// A table of embeddings sharded by rows and by columns, in a network, the same way.
void check_sharded_embedding(World& world);

}  // namespace tessera::test
