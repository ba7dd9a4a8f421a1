#include "tessera/nn/distribute_module.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "nn/networks.h"
#include "support/rank_test.h"
#include "tessera/tensor/in_place.h"

namespace tessera::nn {
namespace {

using test::expect_near;
using test::expect_same_state;
using test::fill;
using test::HookedNetwork;
using test::losses_of;
using test::on_every_rank_count;
using test::PlainNetwork;
using test::waves;
using test::words;
using testing::HasSubstr;

void cut_linears(const std::string& /*name*/, torch::nn::Module& module, const DeviceMesh& mesh) {
  if (auto* linear = module.as<torch::nn::Linear>()) {
    Placements placements(static_cast<std::size_t>(mesh.ndim()), Replicate());
    placements.back() = Shard(0);
    distribute_in_place(linear->weight, mesh, placements);
    distribute_in_place(linear->bias, mesh, placements);
  }
}

TEST(DistributeModuleTest, WhatIsLeftAloneIsReplicated) {
  on_every_rank_count([](World& world) {
    PlainNetwork reference;
    fill(*reference);
    torch::optim::SGD plain_optimizer(reference->parameters(), torch::optim::SGDOptions(0.1));
    const auto loss_of = [](const at::Tensor& logits) { return logits.pow(2).mean(); };
    const auto expected = losses_of(plain_optimizer, [&] {
      return loss_of(reference(words({3, 4})));
    });
    for (const auto& mesh : test::meshes_of(world)) {
      PlainNetwork network;
      fill(*network);
      torch::optim::SGD optimizer(network->parameters(), torch::optim::SGDOptions(0.1));
      std::vector<std::string> names;
      distribute_module(
          *network, mesh,
          [&](const std::string& name, torch::nn::Module& module, const DeviceMesh& on) {
            names.push_back(name);
            cut_linears(name, module, on);
          });
      EXPECT_THAT(names, testing::ElementsAre("", "embedding", "norm", "fc1", "fc2", "head"));
      const Placements replicated(static_cast<std::size_t>(mesh.ndim()), Replicate());
      EXPECT_EQ(placements_of(network->norm->bias), replicated);
      EXPECT_EQ(placements_of(network->fc1->weight).back(), Placement(Shard(0)));
      const auto tokens = distribute_tensor(words({3, 4}), mesh, replicated);
      expect_near(losses_of(optimizer, [&] { return loss_of(network(tokens)); }), expected);
      expect_same_state(*network, *reference);
    }
  });
}

TEST(DistributeModuleTest, BuffersAreDistributedToo) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    torch::nn::BatchNorm1d plain(5);
    fill(*plain);
    torch::nn::BatchNorm1d norm(5);
    fill(*norm);
    distribute_module(*norm, mesh);
    for (const auto& buffer : norm->buffers()) EXPECT_TRUE(is_dtensor(buffer));
    const auto x = waves({6, 5});
    for (int step = 0; step < 2; ++step) {
      const auto y = norm(distribute_tensor(x, mesh, {Replicate()}));
      EXPECT_TRUE(torch::allclose(full_tensor(y), plain(x)));
    }
    EXPECT_TRUE(torch::allclose(full_tensor(norm->running_mean), plain->running_mean));
    EXPECT_TRUE(torch::allclose(full_tensor(norm->running_var), plain->running_var));
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 2);
  });
}

TEST(DistributeModuleTest, InputAndOutputFunctionsRunAroundForward) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    PlainNetwork reference;
    fill(*reference);
    Hooked<HookedNetwork> network;
    fill(*network);
    distribute_module(
        *network, mesh, cut_linears,
        [](torch::nn::Module&, TensorLeaves inputs, const DeviceMesh& on) {
          *inputs[0] = distribute_tensor(*inputs[0], on, {Shard(0)});
        },
        [](torch::nn::Module&, TensorLeaves outputs, const DeviceMesh& /*mesh*/) {
          *outputs[0] = full_tensor(*outputs[0]);
        });
    const auto logits = network(words({5, 3}));
    EXPECT_FALSE(is_dtensor(logits));
    EXPECT_TRUE(torch::allclose(logits, reference(words({5, 3}))));
  });
}

TEST(DistributeModuleTest, ValuesAreThoseOfTheFirstRank) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    torch::nn::Linear linear(2, 3);
    {
      const torch::NoGradGuard no_grad;
      linear->weight.fill_(static_cast<double>(world.rank() + 1));
    }
    distribute_module(*linear, mesh);
    EXPECT_TRUE(torch::equal(full_tensor(linear->weight).detach(), torch::ones({3, 2})));
  });
}

TEST(DistributeModuleTest, ErrorsComeBeforeAnythingIsChanged) {
  const auto message = [](const std::function<void(const DeviceMesh&)>& fn) {
    return test::failure_of(2, [&](World&) { fn(init_device_mesh("cpu", {2})); });
  };
  EXPECT_THAT(message([](const auto& mesh) {
                torch::nn::Linear linear(2, 3);
                distribute_module(*linear, mesh);
                distribute_module(*linear, mesh);
              }),
              HasSubstr("distribute_module: the module (torch::nn::Linear) was distributed before; "
                        "it can only be called once on a module"));
  EXPECT_THAT(message([](const auto& mesh) {
                torch::nn::LinearImpl linear(2, 3);
                distribute_module(linear, mesh);
              }),
              HasSubstr("hold it by a module holder or a std::shared_ptr"));
  EXPECT_THAT(message([](const auto& mesh) {
                torch::nn::Linear linear(2, 3);
                try {
                  distribute_module(*linear, mesh, {},
                                    [](torch::nn::Module&, TensorLeaves, const DeviceMesh&) {});
                } catch (...) {
                  EXPECT_FALSE(is_dtensor(linear->weight));
                  throw;
                }
              }),
              HasSubstr("make it a tessera::nn::Hooked<torch::nn::Linear>"));
}

TEST(DistributeModuleTest, PartsMayBeDistributedBeforeTheWhole) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    PlainNetwork network;
    distribute_module(*network->fc1, mesh, cut_linears);
    distribute_module(*network, mesh);
    EXPECT_EQ(placements_of(network->fc1->weight), Placements{Shard(0)});
    EXPECT_EQ(placements_of(network->fc2->weight), Placements{Replicate()});
  });
}

}  // namespace
}  // namespace tessera::nn
