#include "tessera/nn/fully_shard.h"

#include <gmock/gmock.h>

#include <torch/optim/adamw.h>

#include "nn/training/small_net.h"
#include "support/rank_test.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/in_place.h"
#include "tessera/tensor/strict_mode.h"

namespace tessera {
namespace {

using test::batch_on;
using test::counted;
using test::loss_of;
using test::SmallNet;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Trains both for a few steps and compares parameters, gradients and the optimizer's state.
void expect_equal_training(SmallNet spread, const DeviceMesh& mesh) {
  SmallNet plain;
  torch::optim::AdamW plain_optimizer(plain->parameters(), torch::optim::AdamWOptions(1e-2));
  torch::optim::AdamW optimizer(spread->parameters(), torch::optim::AdamWOptions(1e-2));
  const auto batch = counted({5, 5});
  for (int step = 0; step < 3; ++step) {
    plain_optimizer.zero_grad();
    loss_of(plain->forward(batch)).backward();
    plain_optimizer.step();
    optimizer.zero_grad();
    loss_of(spread->forward(batch_on(mesh, batch))).backward();
    optimizer.step();
  }
  const auto expected = plain->named_parameters();
  for (const auto& [name, parameter] : spread->named_parameters().pairs()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(layout_of(parameter.grad()), layout_of(parameter));
    EXPECT_TRUE(torch::allclose(full_tensor(parameter.grad()), expected[name].grad(), 1e-9, 1e-12));
    EXPECT_TRUE(torch::allclose(full_tensor(parameter), expected[name], 1e-9, 1e-12));
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *optimizer.state().at(parameter.unsafeGetTensorImpl()));
    EXPECT_EQ(layout_of(state.exp_avg()), layout_of(parameter));
    EXPECT_EQ(layout_of(state.exp_avg_sq()), layout_of(parameter));
  }
}

TEST(FullyShardTest, TrainsLikeOnOneRank) {
  test::on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet net;
    nn::fully_shard(*net, mesh);
    EXPECT_EQ(placements_of(net->first->weight), Placements{Shard(0)});
    EXPECT_EQ(placements_of(net->scale), Placements{Replicate()});
    EXPECT_EQ(placements_of(net->seen), Placements{Replicate()});
    expect_equal_training(net, mesh);
  });
}

TEST(FullyShardTest, OnlyParametersAndGradientsMove) {
  run_ranks(3, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet net;
    nn::fully_shard(*net, mesh, {.bucket_bytes = 1'000'000});
    // One row per rank: moving activations instead of weights would be cheaper.
    const auto x = batch_on(mesh, counted({3, 5}));
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      at::Tensor y;
      {
        // The gathering was asked for, so that it is not implicit.
        const StrictGuard strict;
        y = net->forward(x);
      }
      EXPECT_EQ(placements_of(y), Placements{Shard(0)});
      loss_of(y).backward();
    }
    for (const auto& record : traffic.records()) {
      if (record.cause != "gradients") {
        EXPECT_THAT(record.cause, StartsWith("gather a parameter, for aten::"));
      }
    }
    EXPECT_EQ(traffic.count("reduce_scatter_tensor_coalesced"), 1) << traffic.table();
  });
}

TEST(FullyShardTest, CutsWhatAnotherMeshDimLeaves) {
  run_ranks(4, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    SmallNet net;
    distribute_in_place(net->first->weight, mesh, {Replicate(), Shard(0)});
    distribute_in_place(net->first->bias, mesh, {Replicate(), Shard(0)});
    distribute_in_place(net->last->weight, mesh, {Replicate(), Shard(1)});
    nn::fully_shard(*net, mesh, {.mesh_dim = "dp"});
    EXPECT_EQ(placements_of(net->first->weight), (Placements{Shard(1), Shard(0)}));
    EXPECT_EQ(placements_of(net->first->bias), (Placements{Shard(0), Shard(0)}));
    EXPECT_EQ(placements_of(net->last->weight), (Placements{Shard(0), Shard(1)}));
    EXPECT_EQ(placements_of(net->last->bias), (Placements{Shard(0), Replicate()}));
    expect_equal_training(net, mesh);
  });
}

TEST(FullyShardTest, SmallParametersCanStayWhole) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet net;
    nn::fully_shard(*net, mesh, {.min_elements = 10});
    EXPECT_EQ(placements_of(net->first->weight), Placements{Shard(0)});
    EXPECT_EQ(placements_of(net->first->bias), Placements{Replicate()});
    expect_equal_training(net, mesh);
  });
}

TEST(FullyShardTest, WrongMeshDimsAreRefused) {
  const auto text_of = [](const char* mesh_dim) {
    return test::failure_of(4, [=](World&) {
      SmallNet net;
      nn::fully_shard(*net, init_device_mesh("cpu", {2, 2}, {"dp", "tp"}), {.mesh_dim = mesh_dim});
    });
  };
  EXPECT_THAT(text_of(""), HasSubstr("fully_shard: no mesh_dim given for DeviceMesh([dp=2, tp=2], "
                                     "cpu); say over which of its dims parameters are cut"));
  EXPECT_THAT(text_of("pp"), HasSubstr("fully_shard: mesh dim \"pp\" given for DeviceMesh([dp=2, "
                                       "tp=2], cpu); use one of its names"));
  const auto twice = test::failure_of(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet net;
    nn::fully_shard(*net, mesh);
    nn::fully_shard(*net, mesh);
  });
  EXPECT_THAT(twice,
              HasSubstr("is cut along that mesh dim already; fully_shard takes modules whose "
                        "parameters are plain, or replicated there"));
}

}  // namespace
}  // namespace tessera
