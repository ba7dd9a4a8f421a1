// The cases of DTensor and local_map as one rank of whatever it is started by: `tensor_ranks NAME`.

#include <functional>
#include <iostream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tensor/local_map_cases.h"
#include "tensor/op_tables.h"
#include "tensor/redistribute_all_cases.h"
#include "tensor/training_case.h"
#include "tessera/base/concat.h"
#include "tessera/base/error.h"

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
  if (world.size() >= 2) check_disagreement_on_sizes(world);
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

const std::map<std::string, std::function<void(World&)>>& all_cases() {
  static const std::map<std::string, std::function<void(World&)>> cases = {
      {"local_map", check_local_map},
      {"moves", check_moves},
      {"ops", check_ops},
      {"redistribute_all", check_redistribute_all},
      {"training", check_training}};
  return cases;
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  using tessera::test::all_cases;
  const std::string name = argc > 1 ? argv[1] : "";
  const auto found = all_cases().find(name);
  if (found == all_cases().end()) {
    std::cerr << "tensor_ranks: no case called \"" << name << "\"\n";
    return 2;
  }
  return tessera::launch(argc, argv, [&](tessera::World& world) {
    found->second(world);
    if (::testing::Test::HasFailure()) {
      throw tessera::Error(tessera::concat(name, " failed on rank ", world.rank()));
    }
  });
}
