// The cases of sharded tensors as one rank of whatever it is started by: `sharded_ranks NAME`.

#include <functional>
#include <iostream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "sharded/sharded_cases.h"
#include "sharded/training_cases.h"
#include "tessera/base/concat.h"
#include "tessera/base/error.h"
#include "tessera/comm/world.h"

namespace tessera::test {
namespace {

void check_moves(World& world) {
  check_random_resharding(world, 1000, 15);
  check_random_dtensors(world, 1000, 10);
}

void check_training(World& world) {
  check_sharded_mlp(world);
  check_sharded_embedding(world);
}

const std::map<std::string, std::function<void(World&)>>& all_cases() {
  static const std::map<std::string, std::function<void(World&)>> cases = {
      {"moves", check_moves}, {"training", check_training}};
  return cases;
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  using tessera::test::all_cases;
  const std::string name = argc > 1 ? argv[1] : "";
  const auto found = all_cases().find(name);
  if (found == all_cases().end()) {
    std::cerr << "sharded_ranks: no case called \"" << name << "\"\n";
    return 2;
  }
  return tessera::launch(argc, argv, [&](tessera::World& world) {
    found->second(world);
    if (::testing::Test::HasFailure()) {
      throw tessera::Error(tessera::concat(name, " failed on rank ", world.rank()));
    }
  });
}
