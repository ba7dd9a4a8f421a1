#include "tessera/nn/data_parallel.h"

#include <gmock/gmock.h>

#include "nn/training/small_net.h"
#include "support/rank_test.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {
namespace {

using test::batch_on;
using test::counted;
using test::loss_of;
using test::SmallNet;
using ::testing::HasSubstr;

/// The gradients of both networks are the same, and those of the first one are placed like its
/// parameters.
void expect_equal_gradients(const SmallNet& spread, const SmallNet& plain) {
  const auto expected = plain->named_parameters();
  for (const auto& [name, parameter] : spread->named_parameters().pairs()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(parameter.grad().defined());
    EXPECT_EQ(placements_of(parameter.grad()), placements_of(parameter));
    EXPECT_TRUE(
        torch::allclose(full_tensor(parameter.grad()), expected[name].grad(), 1e-12, 1e-12));
  }
}

TEST(DataParallelTest, GradientsAreThoseOfTheWholeBatch) {
  test::on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    for (const std::int64_t rows : {1, 2, 5, 8}) {
      SCOPED_TRACE(rows);
      SmallNet plain;
      SmallNet spread;
      nn::data_parallel(*spread, mesh);
      const auto batch = counted({rows, 5});
      const auto expected = loss_of(plain->forward(batch));
      expected.backward();
      const auto loss = loss_of(spread->forward(batch_on(mesh, batch)));
      loss.backward();
      EXPECT_NEAR(full_tensor(loss).item<double>(), expected.item<double>(), 1e-12);
      expect_equal_gradients(spread, plain);
    }
  });
}

TEST(DataParallelTest, AllGradientsGoInOneMessage) {
  run_ranks(3, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet net;
    nn::data_parallel(*net, mesh);
    const auto loss = loss_of(net->forward(batch_on(mesh, counted({6, 5}))));
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      loss.backward();
    }
    EXPECT_EQ(traffic.count("all_reduce_coalesced"), 1);
    EXPECT_EQ(traffic.total_count(), 1) << traffic.table();
    EXPECT_EQ(traffic.records().at(0).cause, "gradients");
  });
}

TEST(DataParallelTest, SmallBucketsGoOneByOne) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet plain;
    SmallNet net;
    nn::data_parallel(*net, mesh, {.bucket_bytes = 1});
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      loss_of(net->forward(batch_on(mesh, counted({6, 5})))).backward();
    }
    EXPECT_EQ(traffic.count("all_reduce_coalesced"), std::ssize(net->parameters()));
    loss_of(plain->forward(counted({6, 5}))).backward();
    expect_equal_gradients(net, plain);
  });
}

TEST(DataParallelTest, LargeGradientsGoAlone) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet net;
    nn::data_parallel(*net, mesh, {.bucket_bytes = 100});
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      loss_of(net->forward(batch_on(mesh, counted({6, 5})))).backward();
    }
    std::vector<std::int64_t> large;
    for (const auto& record : traffic.records()) {
      if (record.received_bytes > 125) large.push_back(record.received_bytes);
    }
    // Two ranks receive as much as they have, in two halves.
    const auto received = [](const at::Tensor& x) { return (x.numel() + 1) / 2 * 16; };
    EXPECT_THAT(large, testing::UnorderedElementsAre(received(net->first->weight),
                                                     received(net->last->weight)));
    EXPECT_LT(traffic.count("all_reduce_coalesced"), std::ssize(net->parameters()));
  });
}

TEST(DataParallelTest, SeveralBatchesCostOneMessage) {
  test::on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet plain;
    SmallNet net;
    nn::data_parallel(*net, mesh);
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      {
        const nn::NoGradientSync later;
        EXPECT_TRUE(nn::NoGradientSync::is_enabled());
        loss_of(net->forward(batch_on(mesh, counted({5, 5})))).backward();
      }
      EXPECT_FALSE(nn::NoGradientSync::is_enabled());
      EXPECT_EQ(traffic.total_count(), 0);
      loss_of(net->forward(batch_on(mesh, counted({4, 5}) + 1))).backward();
    }
    EXPECT_EQ(traffic.count("all_reduce_coalesced"), 1);
    loss_of(plain->forward(counted({5, 5}))).backward();
    loss_of(plain->forward(counted({4, 5}) + 1)).backward();
    expect_equal_gradients(net, plain);
  });
}

TEST(DataParallelTest, ValuesAreThoseOfTheFirstRank) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet net;
    {
      const torch::NoGradGuard no_history;
      net->scale.fill_(static_cast<double>(world.rank() + 3));
    }
    nn::data_parallel(*net, mesh);
    EXPECT_EQ(to_local(net->scale).item<double>(), 3);
    EXPECT_TRUE(is_dtensor(net->seen));
  });
}

TEST(DataParallelTest, FrozenAndUnusedParametersAreLeftAlone) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    SmallNet net;
    net->first->weight.requires_grad_(false);
    nn::data_parallel(*net, mesh);
    EXPECT_FALSE(net->first->weight.requires_grad());
    net->first->forward(batch_on(mesh, counted({3, 5}))).sum().backward();
    EXPECT_FALSE(net->first->weight.grad().defined());
    EXPECT_FALSE(net->last->weight.grad().defined());
    EXPECT_EQ(placements_of(net->first->bias.grad()), Placements{Replicate()});
  });
}

TEST(DataParallelTest, ParametersOnAnotherMeshAreRefused) {
  const auto text = test::failure_of(2, [](World& world) {
    SmallNet net;
    nn::data_parallel(*net, init_device_mesh("cpu", {world.size()}, {"dp"}));
    nn::data_parallel(*net, init_device_mesh("cpu", {world.size()}, {"other"}));
  });
  EXPECT_THAT(text, HasSubstr("data_parallel: 'scale' is on DeviceMesh([dp=2], cpu), not on "
                              "DeviceMesh([other=2], cpu); all parameters and buffers of a module "
                              "must be on one mesh"));
}

}  // namespace
}  // namespace tessera
