// The cases of DTensor and local_map as one rank of whatever it is started by: `tensor_ranks NAME`.

#include <string_view>

#include "support/rank_cases.h"
#include "tensor/local_map_cases.h"
#include "tensor/op_tables.h"
#include "tensor/redistribute_all_cases.h"
#include "tensor/training_case.h"

namespace tessera::test {
namespace {

void check_local_map(World& world) {
  check_matmul_with_all_reduce(world);
  check_output_without_placements(world);
  check_plain_inputs(world);
  check_in_placements(world);
  check_redistribution_of_inputs(world);
  check_gradient_placements(world);
  if (world.size() >= 2) check_masked_mean(world);
  check_random_programs(world, 1000, 10);
  check_sizes_of_results(world);
  // With mpi a failure ends the whole job, even one that a rank has handled.
  const bool may_fail = std::string_view(world.engine()) != "mpi";
  if (world.size() >= 2 && may_fail) check_disagreement_on_sizes(world);
}

void check_redistribute_all(World& world) {
  check_one_collective(world);
  check_random_lists(world, 5000, 15);
}

/// A few random calls of ops of every family that communicates in its own way.
void check_ops(World& /*world*/) {
  check_sample("binary", pointwise_table(), 40);
  check_sample("reduction", reduction_table(), 40);
  check_sample("matmul", matmul_table(), 40);
  check_sample("view", view_table(), 30);
  check_sample("index", index_table(), 30);
  check_sample("norm", norm_table(), 20);
  check_sample("attention", attention_table(), 10);
  check_sample("convolution", convolution_table(), 10);
  check_sample("loss", loss_table(), 30);
  check_sample("list", list_table(), 20);
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  using namespace tessera::test;
  return run_rank_case(argc, argv,
                       {{"local_map", check_local_map},
                        {"moves", check_moves},
                        {"ops", check_ops},
                        {"redistribute_all", check_redistribute_all},
                        {"training", check_training}});
}
