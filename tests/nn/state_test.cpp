#include "tessera/nn/state.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "nn/networks.h"
#include "support/rank_test.h"
#include "tessera/comm/traffic.h"
#include "tessera/nn/distribute_module.h"
#include "tessera/nn/optimizer_state.h"
#include "tessera/nn/parallelize_module.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/in_place.h"

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

void train_a_step(torch::optim::Optimizer& optimizer, torch::nn::Linear& linear,
                  const at::Tensor& x) {
  test::losses_of(
      optimizer, [&] { return linear(x).pow(2).mean(); }, 2);
}

template <typename Make>
void check_optimizer_state(World& world, const Make& make) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const auto x = test::waves({4, 5});
  torch::nn::Linear plain(5, 7);
  fill(*plain);
  auto plain_optimizer = make(plain->parameters());
  train_a_step(plain_optimizer, plain, x);
  const auto state = full_optimizer_state_dict(plain_optimizer, *plain);
  EXPECT_TRUE(state.contains("weight.step") || state.contains("weight.momentum_buffer"));

  // An optimizer that made steps before its parameters were distributed.
  torch::nn::Linear late(5, 7);
  fill(*late);
  auto late_optimizer = make(late->parameters());
  train_a_step(late_optimizer, late, x);
  distribute_module(*late, mesh, [](const auto&, torch::nn::Module& module, const auto& on) {
    distribute_in_place(module.as<torch::nn::Linear>()->weight, on, {Shard(0)});
  });
  distribute_optimizer_state(late_optimizer);
  distribute_optimizer_state(late_optimizer);

  // A new one that gets the state.
  torch::nn::Linear loaded(5, 7);
  loaded->to(torch::kDouble);
  distribute_module(*loaded, mesh, [](const auto&, torch::nn::Module& module, const auto& on) {
    distribute_in_place(module.as<torch::nn::Linear>()->weight, on, {Shard(1)});
  });
  load_state_dict(*loaded, full_state_dict(*plain));
  auto loaded_optimizer = make(loaded->parameters());
  load_optimizer_state_dict(loaded_optimizer, *loaded, state);
  for (const auto& [name, tensor] : full_optimizer_state_dict(loaded_optimizer, *loaded)) {
    EXPECT_TRUE(torch::equal(tensor, state.at(name))) << name;
  }
  for (const auto& [name, tensor] : optimizer_state_dict(loaded_optimizer, *loaded)) {
    if (name.starts_with("weight.") && tensor.dim() > 0) {
      EXPECT_EQ(placements_of(tensor), Placements{Shard(1)}) << name;
    }
  }

  const auto input = distribute_tensor(x, mesh, {Replicate()});
  train_a_step(plain_optimizer, plain, x);
  train_a_step(late_optimizer, late, input);
  train_a_step(loaded_optimizer, loaded, input);
  test::expect_same_state(*late, *plain);
  test::expect_same_state(*loaded, *plain);
}

TEST(StateTest, OptimizersGoOnWhereTheyWere) {
  on_every_rank_count([](World& world) {
    using Parameters = std::vector<at::Tensor>;
    check_optimizer_state(world, [](Parameters parameters) {
      return torch::optim::Adam(std::move(parameters),
                                torch::optim::AdamOptions(0.1).amsgrad(true));
    });
    check_optimizer_state(world, [](Parameters parameters) {
      return torch::optim::AdamW(std::move(parameters), torch::optim::AdamWOptions(0.1));
    });
    check_optimizer_state(world, [](Parameters parameters) {
      return torch::optim::SGD(std::move(parameters), torch::optim::SGDOptions(0.1).momentum(0.9));
    });
    check_optimizer_state(world, [](Parameters parameters) {
      return torch::optim::RMSprop(std::move(parameters),
                                   torch::optim::RMSpropOptions(0.1).momentum(0.5).centered(true));
    });
    check_optimizer_state(world, [](Parameters parameters) {
      return torch::optim::Adagrad(std::move(parameters), torch::optim::AdagradOptions(0.1));
    });
  });
}

TEST(StateTest, OptimizerStatesThatDoNotFitAreErrors) {
  torch::nn::Linear linear(2, 3);
  torch::optim::AdamW optimizer(linear->parameters());
  const auto message = [&](const StateDict& state, torch::nn::Module& module) {
    try {
      load_optimizer_state_dict(optimizer, module, state);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message({{"weight.exp_avgs", torch::zeros({3, 2})}}, *linear),
              HasSubstr("unexpected: 'weight.exp_avgs', near ones are 'weight.exp_avg'"));
  EXPECT_THAT(message({{"weight.exp_avg", torch::zeros({2})}}, *linear),
              HasSubstr("'weight.exp_avg' has another shape than it should"));
  torch::nn::Linear other(2, 3);
  EXPECT_THAT(message({}, *other), HasSubstr("that is not one of the module's"));
  torch::optim::LBFGS unknown(linear->parameters());
  EXPECT_THROW(load_optimizer_state_dict(unknown, *linear, {}), InvalidArgument);
}

}  // namespace
}  // namespace tessera::nn
