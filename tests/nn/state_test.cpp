#include "tessera/nn/state.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "nn/networks.h"
#include "support/rank_test.h"
#include "tessera/comm/traffic.h"
#include "tessera/nn/distribute_module.h"
#include "tessera/nn/parallelize_module.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::nn {
namespace {

using test::fill;
using test::on_every_rank_count;
using test::PlainNetwork;
using testing::HasSubstr;

PlainNetwork parallel_network(const DeviceMesh& mesh) {
  PlainNetwork network;
  network->to(torch::kDouble);
  parallelize_module(
      *network, mesh,
      {{"embedding", RowwiseParallel{}}, {"fc1", ColwiseParallel{}}, {"fc2", RowwiseParallel{}}},
      {.activations = Activations::distributed, .mesh_dim = "tp"});
  return network;
}

TEST(StateTest, FullTensorsGoIntoAShardedModuleAndComeOut) {
  on_every_rank_count([](World& world) {
    PlainNetwork reference;
    fill(*reference);
    const auto state = full_state_dict(*reference);
    EXPECT_EQ(state.size(), reference->parameters().size());
    for (const auto& mesh : test::meshes_of(world)) {
      auto network = parallel_network(mesh);
      const auto layout = layout_of(network->fc1->weight);
      CommDebugMode traffic;
      {
        const auto scope = traffic.record();
        const auto report = load_state_dict(*network, state);
        EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
      }
      EXPECT_EQ(traffic.total_count(), 0) << "all ranks have the values already";
      EXPECT_EQ(layout_of(network->fc1->weight), layout);
      EXPECT_TRUE(network->fc1->weight.requires_grad() && network->fc1->weight.is_leaf());
      test::expect_same_state(*network, *reference);
      // From one parallel module into another one, and back into a plain one.
      auto other = parallel_network(mesh);
      load_state_dict(*other, state_dict(*network));
      test::expect_same_state(*other, *reference);
      PlainNetwork plain;
      plain->to(torch::kDouble);
      load_state_dict(*plain, state_dict(*network));
      test::expect_same_state(*plain, *reference);
    }
  });
}

TEST(StateTest, OneRankMayHaveTheValues) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"tp"});
    PlainNetwork reference;
    fill(*reference);
    auto state = full_state_dict(*reference);
    if (world.rank() != 0) {
      for (auto& [name, tensor] : state) tensor = torch::zeros_like(tensor);
    }
    auto network = parallel_network(mesh);
    load_state_dict(*network, state, {.src_data_rank = 0});
    test::expect_same_state(*network, *reference);
  });
}

TEST(StateTest, LocalPartsComeWithTheirLayouts) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"tp"});
    auto network = parallel_network(mesh);
    const auto parts = local_state_dict(*network);
    const auto& weight = parts.at("fc1.weight");
    ASSERT_TRUE(weight.layout.has_value());
    EXPECT_EQ(weight.layout->placements(), Placements{Shard(0)});
    EXPECT_EQ(weight.tensor.sizes().vec(), weight.layout->local_shape(world.rank()));
    EXPECT_FALSE(is_dtensor(weight.tensor));
    PlainNetwork plain;
    EXPECT_FALSE(local_state_dict(*plain).at("fc1.weight").layout.has_value());
  });
}

TEST(StateTest, StatesShareMemoryOrNot) {
  torch::nn::Linear linear(2, 2);
  auto whole = full_state_dict(*linear);
  whole.at("weight").zero_();
  EXPECT_FALSE(torch::equal(linear->weight, torch::zeros({2, 2})));
  auto same = state_dict(*linear);
  EXPECT_FALSE(same.at("weight").requires_grad());
  same.at("weight").zero_();
  EXPECT_TRUE(torch::equal(linear->weight, torch::zeros({2, 2})));
}

TEST(StateTest, WhatDoesNotFitIsListedBeforeAnythingIsChanged) {
  PlainNetwork network;
  fill(*network);
  const auto before = full_state_dict(*network);
  auto state = full_state_dict(*network);
  state.emplace("fc1.wieght", state.at("fc1.weight").clone());
  state.erase("fc1.weight");
  state.erase("norm.bias");
  state.at("fc2.weight") = torch::zeros({3, 3});
  for (auto& [name, tensor] : state) tensor.zero_();
  try {
    load_state_dict(*network, state);
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing: 'fc1.weight' (given is 'fc1.wieght'), "
                                        "'norm.bias'; unexpected: 'fc1.wieght' (the module has "
                                        "'fc1.weight'); shapes that differ: 'fc2.weight' is [3,3], "
                                        "the module's is [6,10]"));
  }
  for (const auto& [name, tensor] : full_state_dict(*network)) {
    EXPECT_TRUE(torch::equal(tensor, before.at(name)));
  }
  state.erase("fc2.weight");
  const auto report = load_state_dict(*network, state, {.strict = false});
  EXPECT_THAT(report.missing, testing::ElementsAre("fc1.weight", "fc2.weight", "norm.bias"));
  EXPECT_THAT(report.unexpected, testing::ElementsAre("fc1.wieght"));
  EXPECT_TRUE(torch::equal(network->fc2->bias.detach(), torch::zeros({6}, torch::kDouble)));
}

}  // namespace
}  // namespace tessera::nn
