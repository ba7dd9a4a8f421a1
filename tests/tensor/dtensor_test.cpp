#include "tessera/tensor/dtensor.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/samples.h"
#include "tensor/training_case.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/factories.h"
#include "tessera/tensor/random.h"
#include "tessera/tensor/strict_mode.h"

namespace tessera {
namespace {

using test::counted;
using test::on_every_rank_count;

TEST(DTensorTest, AnotherOrderOfCutsIsAnotherLayout) {
  run_ranks(4, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Placements rows = {Shard(0), Shard(0)};
    const auto x = distribute_tensor(counted({8}), mesh, rows);
    const Layout tp_first(mesh.shape(), rows, {8}, {1, 0});
    const auto y = detail::move(x, mesh, tp_first);
    ASSERT_EQ(layout_of(y), tp_first);
    const auto z = redistribute(y, rows);
    EXPECT_EQ(layout_of(z), layout_of(x));
    EXPECT_TRUE(torch::equal(to_local(z), to_local(x)));
    EXPECT_TRUE(redistribute(x, rows).is_same(x));
  });
}

TEST(DTensorTest, DistributeAndFullTensorAreInverse) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const auto& sizes :
         std::vector<std::vector<std::int64_t>>{{8, 3}, {5, 2}, {1, 1}, {0, 4}}) {
      const auto x = counted(sizes, at::kFloat, 1);
      for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(1)),
                                         Placement(Replicate()), Placement(Partial())}) {
        const auto d = distribute_tensor(x, mesh, {placement});
        EXPECT_TRUE(is_dtensor(d));
        EXPECT_EQ(d.sizes(), x.sizes());
        EXPECT_TRUE(torch::equal(full_tensor(d), x)) << to_string(d);
      }
    }
  });
}

TEST(DTensorTest, OperationsMatchPlainOnes) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = counted({6, 4}, at::kFloat, 1);
    const auto y = counted({4, 5}, at::kFloat, 1);
    const auto dx = distribute_tensor(x, mesh, {Shard(0)});
    const auto dy = distribute_tensor(y, mesh, {Replicate()});
    EXPECT_TRUE(torch::equal(full_tensor(dx + dx), x + x));
    EXPECT_TRUE(torch::allclose(full_tensor(torch::mm(dx, dy)), torch::mm(x, y)));
    EXPECT_TRUE(torch::allclose(full_tensor(dx.mean()), x.mean()));
    EXPECT_TRUE(torch::allclose(full_tensor(torch::softmax(dx, 1)), torch::softmax(x, 1)));
    EXPECT_TRUE(torch::allclose(full_tensor(dx.view({-1})), x.view({-1})));
    EXPECT_TRUE(torch::allclose(full_tensor(dx.t().contiguous()), x.t()));
  });
}

TEST(DTensorTest, TrainsANetworkAsPlainTensorsDo) { on_every_rank_count(test::check_training); }

TEST(DTensorTest, MovesBetweenLayoutsWithGradients) { on_every_rank_count(test::check_moves); }

TEST(DTensorTest, RandomValuesDoNotDependOnTheLayout) {
  at::Tensor first;
  run_ranks(1, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {1});
    manual_seed(3);
    first = full_tensor(randn({5, 6}, mesh));
  });
  on_every_rank_count([&](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const Placement& placement :
         {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate()), Placement(Partial())}) {
      manual_seed(3);
      EXPECT_TRUE(torch::equal(full_tensor(randn({5, 6}, mesh, {placement})), first));
    }
  });
}

TEST(DTensorTest, StrictModeRefusesImplicitTraffic) {
  const auto message = test::failure_of(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto a = distribute_tensor(counted({4, 4}, at::kFloat, 1), mesh, {Shard(0)});
    const auto b = distribute_tensor(counted({4, 4}, at::kFloat, 1), mesh, {Shard(1)});
    const StrictGuard strict;
    (void)(a + b);
  });
  EXPECT_THAT(message, testing::HasSubstr("Implicit redistribution occurred"));
  EXPECT_THAT(message, testing::HasSubstr("aten::add.Tensor(f32[4,4][S(0)], f32[4,4][S(1)]) on"));
}

}  // namespace
}  // namespace tessera
