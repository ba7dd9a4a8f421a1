#include "tessera/comm/redistribute_local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include "comm/redistribute_oracle.h"
#include "support/rank_test.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/traffic.h"

namespace tessera::test {
namespace {

using ::testing::HasSubstr;

TEST(RedistributeLocalTest, AsynchronousResultsWaitForTheirFirstUse) {
  on_every_rank_count([](World& world) {
    const MeshShape mesh({world.size()});
    const Layout rows(mesh, {Shard(0)}, {4, 8});
    const Layout columns(mesh, {Shard(1)}, {4, 8});
    const at::Tensor whole = at::arange(32, at::kFloat).view({4, 8});
    const at::Tensor local = part_of(whole, *rows.part_of(world.rank()));
    const at::Tensor want = part_of(whole, *columns.part_of(world.rank()));
    const at::Tensor moved = redistribute_local(local, rows, columns, {.async_op = true});
    EXPECT_EQ(is_pending(moved), world.size() > 1);
    EXPECT_EQ(moved.sizes(), want.sizes());
    EXPECT_TRUE(at::equal(moved + 1, want + 1));
    EXPECT_FALSE(is_pending(moved));
    // What is under way can be moved on, and dropped.
    const at::Tensor there = redistribute_local(local, rows, columns, {.async_op = true});
    const at::Tensor back = redistribute_local(there, columns, rows, {.async_op = true});
    EXPECT_TRUE(at::equal(wait(back), local));
    (void)redistribute_local(local, rows, columns, {.async_op = true});
  });
}

TEST(RedistributeLocalTest, AsynchronousResultsComeBeforeOthersHaveCalled) {
  // Rank 0 returns from its call although rank 1 makes its own only when it was told to.
  run_ranks(
      2,
      [](World& world) {
        const Layout rows(MeshShape({2}), {Shard(0)}, {4, 4});
        const Layout columns(MeshShape({2}), {Shard(1)}, {4, 4});
        const at::Tensor local = at::full({2, 4}, static_cast<float>(world.rank()));
        const Group group = world.group({1, 0});
        at::Tensor moved;
        if (world.rank() == 0) moved = redistribute_local(local, rows, columns, {.async_op = true});
        barrier(group);
        if (world.rank() == 1) moved = redistribute_local(local, rows, columns);
        EXPECT_EQ(moved.sum().item<float>(), 4.0F);
      },
      test_options());
}

TEST(RedistributeLocalTest, TrafficIsRecordedOncePerStep) {
  run_ranks(4, [](World& world) {
    const Layout rows(MeshShape({4}), {Shard(0)}, {8, 8});
    const Layout columns(MeshShape({4}), {Shard(1)}, {8, 8});
    const at::Tensor local = at::ones({2, 8});
    for (const bool async_op : {false, true}) {
      CommDebugMode mode;
      {
        const auto scope = mode.record();
        (void)wait(redistribute_local(local, rows, columns, {.async_op = async_op}));
        (void)redistribute_local(local, rows, rows);
      }
      ASSERT_EQ(mode.records().size(), 1U);
      const CommRecord& record = mode.records().front();
      EXPECT_EQ(record.name, std::string("all_to_all_single"));
      EXPECT_EQ(record.received_bytes, 48);
      EXPECT_EQ(record.rank, world.rank());
      EXPECT_THAT(record.cause, HasSubstr("redistribute [S(0)] -> [S(1)]"));
      EXPECT_GT(record.duration.count(), 0);
    }
  });
}

TEST(RedistributeLocalTest, NothingToMoveGivesBackTheSameTensor) {
  on_every_rank_count([](World& world) {
    const MeshShape mesh({world.size()});
    const Layout rows(mesh, {Shard(0)}, {4, 4});
    const Layout named(MeshShape({world.size()}, {"tp"}), {Shard(0)}, {4, 4});
    const at::Tensor local = at::ones(rows.local_shape(*mesh.position_of(world.rank())));
    EXPECT_TRUE(redistribute_local(local, rows, rows).is_same(local));
    EXPECT_TRUE(redistribute_local(local, rows, named).is_same(local));
  });
}

TEST(RedistributeLocalTest, BitsAreKept) {
  const MeshShape mesh({3});
  // Quiet and signalling NaNs, both zeros, subnormal numbers: no arithmetic would keep these.
  const std::vector<std::int64_t> bits = {0x7fc00001, -1, 0x80000000, 1,  0x7f800001, 0xffc12345, 7,
                                          8,          9,  0x80000001, 11, 12};
  const auto whole = torch::tensor(bits, at::kLong).to(at::kInt).view({4, 3});
  for (const bool indirect : {false, true}) {
    run_ranks(3, [&](World& world) {
      if (indirect) make_indirect(world, mesh);
      for (const auto& from : {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate()),
                               Placement(StridedShard(0, 2))}) {
        for (const auto& to : {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate()),
                               Placement(StridedShard(0, 2))}) {
          const Layout before(mesh, {from}, {4, 3});
          const Layout after(mesh, {to}, {4, 3});
          const auto own = part_of(whole, *before.part_of(world.rank()));
          const auto want = part_of(whole, *after.part_of(world.rank()));
          EXPECT_TRUE(at::equal(
              redistribute_local(own.view(at::kFloat), before, after).view(at::kInt), want));
          // bfloat16: the upper halves are NaNs and zeros too.
          const auto halves = [](const at::Tensor& x) {
            return x.view(at::kShort).slice(-1, 1, {}, 2).contiguous();
          };
          EXPECT_TRUE(at::equal(
              redistribute_local(halves(own).view(at::kBFloat16), before, after).view(at::kShort),
              halves(want)));
        }
      }
    });
  }
}

TEST(RedistributeLocalTest, ContributionsThatOnlyMoveKeepTheirBits) {
  // Nobody reduces, so what would not survive an addition must arrive.
  const MeshShape mesh({2, 2});
  const auto bits = torch::tensor({-1, 0x7f800001, -2147483647 - 1, 1}, at::kInt).view({2, 2});
  for (const bool indirect : {false, true}) {
    run_ranks(4, [&](World& world) {
      if (indirect) make_indirect(world, mesh);
      const Layout from(mesh, {Partial(), Shard(0)}, {2, 2});
      const Layout to(mesh, {Partial(), Shard(1)}, {2, 2});
      const auto own = bits.add(world.rank() / 2);
      const auto moved =
          redistribute_local(part_of(own, *from.part_of(world.rank())).view(at::kFloat), from, to);
      EXPECT_TRUE(at::equal(moved.view(at::kInt), part_of(own, *to.part_of(world.rank()))));
    });
  }
}

TEST(RedistributeLocalTest, MismatchedCallsFailOnAllRanks) {
  const Layout rows(MeshShape({2}), {Shard(0)}, {4, 4});
  const Layout columns(MeshShape({2}), {Shard(1)}, {4, 4});
  const Layout whole(MeshShape({2}), {Replicate()}, {4, 4});
  const std::string failure = failure_of(2, [&](World& world) {
    const Layout& to = world.rank() == 0 ? columns : whole;
    (void)redistribute_local(at::ones({2, 4}), rows, to);
  });
  EXPECT_THAT(failure, HasSubstr("the ranks do not agree"));
  EXPECT_THAT(failure, HasSubstr("[S(1)]"));
  EXPECT_THAT(failure, HasSubstr("[R]"));
}

TEST(RedistributeLocalTest, WrongLocalShapesAreRefused) {
  const Layout rows(MeshShape({2}), {Shard(0)}, {4, 4});
  const Layout columns(MeshShape({2}), {Shard(1)}, {4, 4});
  const std::string failure = failure_of(2, [&](World&) {
    (void)redistribute_local(at::ones({4, 4}), rows, columns);
  });
  EXPECT_THAT(failure, HasSubstr("redistribute_local: a local tensor of shape [4,4] given; in "));
  EXPECT_THAT(failure, HasSubstr("it is [2,4]"));
}

}  // namespace
}  // namespace tessera::test
