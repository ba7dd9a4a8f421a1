#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/local_map_cases.h"
#include "tessera/comm/collectives.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {
namespace {

using test::on_every_rank_count;
using test::sample_values;

// That a call overlaps with others is seen by the order of events: rank 0 returns from it, and tells
// so to rank 1 over another group, before rank 1 makes the call at all.

TEST(AsyncRedistributeTest, ForwardReturnsBeforeOthersHaveCalled) {
  run_ranks(
      2,
      [](World& world) {
        const auto mesh = init_device_mesh("cpu", {2});
        const auto values = sample_values({6, 4});
        const auto x = distribute_tensor(values, mesh, {Shard(0)});
        const Group signals = world.group({1, 0});
        const auto move = [&] { return redistribute(x, {Shard(1)}, {.async_op = true}); };
        at::Tensor moved;
        if (world.rank() == 0) moved = move();
        barrier(signals);
        if (world.rank() == 1) moved = move();
        EXPECT_TRUE(is_pending(to_local(moved)));
        EXPECT_EQ(moved.sizes(), values.sizes());
        const auto sum = moved + 1;
        EXPECT_FALSE(is_pending(to_local(moved))) << "the first use waits";
        EXPECT_TRUE(torch::equal(full_tensor(sum), values + 1));
      },
      test::test_options());
}

TEST(AsyncRedistributeTest, BackwardReturnsBeforeOthersHaveCalled) {
  run_ranks(
      2,
      [](World& world) {
        const auto mesh = init_device_mesh("cpu", {2});
        const auto values = sample_values({6, 4});
        auto x = distribute_tensor(values, mesh, {Shard(0)}).requires_grad_();
        const Group signals = world.group({1, 0});
        const auto moved = redistribute(x, {Shard(1)}, {.async_op = true});
        bool was_pending = false;
        // One hook runs right behind the backward of the move, the other right before it.
        if (world.rank() == 0) {
          (void)x.register_hook([&](const at::Tensor& gradient) {
            was_pending = is_pending(to_local(gradient));
            barrier(signals);
          });
        } else {
          (void)moved.register_hook([&](const at::Tensor&) { barrier(signals); });
        }
        to_local(moved).pow(2).sum().backward();
        EXPECT_TRUE(was_pending || world.rank() == 1);
        EXPECT_EQ(placements_of(x.grad()), Placements{Shard(0)});
        EXPECT_TRUE(torch::allclose(full_tensor(x.grad()), 2 * values));
      },
      test::test_options());
}

TEST(AsyncRedistributeTest, SynchronousMovesDoWait) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto x = distribute_tensor(sample_values({6, 4}), mesh, {Shard(0)}).requires_grad_();
    const auto moved = redistribute(x, {Shard(1)});
    EXPECT_FALSE(is_pending(to_local(moved)));
    bool was_pending = true;
    (void)x.register_hook(
        [&](const at::Tensor& gradient) { was_pending = is_pending(to_local(gradient)); });
    to_local(moved).sum().backward();
    EXPECT_FALSE(was_pending);
  });
}

TEST(AsyncRedistributeTest, GradientsThatArePendingAccumulate) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({5, 3});
    for (const Placement& from :
         {Placement(Shard(0)), Placement(Replicate()), Placement(Partial())}) {
      auto x = distribute_tensor(values, mesh, {from}).requires_grad_();
      for (int round = 1; round <= 2; ++round) {
        const auto rows = redistribute(x, {Shard(1)}, {.async_op = true});
        const auto whole = redistribute(x, {Replicate()}, {.async_op = true});
        (rows.pow(2).sum() + whole.sum()).backward();
        EXPECT_TRUE(torch::allclose(full_tensor(x.grad()), round * (2 * values + 1)));
      }
    }
  });
}

TEST(AsyncRedistributeTest, ResultsMayBeDroppedUnused) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({5, 3}), mesh, {Shard(0)});
    (void)redistribute(x, {Shard(1)}, {.async_op = true});
    (void)redistribute_all({x, x}, {{Shard(1)}, {Replicate()}}, {.async_op = true});
    EXPECT_TRUE(torch::equal(full_tensor(x), sample_values({5, 3})));
  });
}

}  // namespace
}  // namespace tessera
