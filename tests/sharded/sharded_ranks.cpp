// The cases of sharded tensors as one rank of whatever it is started by: `sharded_ranks NAME`.

#include "sharded/refusal_cases.h"
#include "sharded/sharded_cases.h"
#include "sharded/training_cases.h"
#include "support/rank_cases.h"

namespace tessera::test {
namespace {

void check_moves(World& world) {
  check_random_resharding(world.group(), 1000, 15);
  if (world.size() > 2) check_sub_groups(world, 1000, 5);
  check_random_dtensors(world, 1000, 10);
}

void check_training(World& world) {
  check_sharded_mlp(world);
  check_sharded_embedding(world);
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  using namespace tessera::test;
  return run_rank_case(
      argc, argv,
      {{"moves", check_moves}, {"refusals", check_refusals}, {"training", check_training}});
}
