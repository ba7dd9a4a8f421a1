// Parallel styles as one rank of whatever it is started by: `nn_ranks`.

#include <gtest/gtest.h>

#include "nn/parallel_cases.h"
#include "tessera/base/concat.h"
#include "tessera/base/error.h"

int main(int argc, char** argv) {
  return tessera::launch(argc, argv, [](tessera::World& world) {
    tessera::test::check_plain_activations(world);
    tessera::test::check_distributed_activations(world);
    tessera::test::check_sequence_parallel(world);
    tessera::test::check_loss_and_clipping(world);
    if (::testing::Test::HasFailure()) {
      throw tessera::Error(tessera::concat("failed on rank ", world.rank()));
    }
  });
}
