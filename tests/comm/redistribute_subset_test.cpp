#include <functional>
#include <latch>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "comm/redistribute_oracle.h"
#include "support/rank_test.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/traffic.h"

// Meshes of some of the ranks: the others hold nothing, and have nothing to do with what happens.

namespace tessera::test {
namespace {

const Shape kShape = {4, 6};

/// From two of four ranks to two others, or to one of them and another: rank 0 is outside of both,
/// rank 2 only of the destination, and rank 3 only of the source.
const Layout kFrom(MeshShape({2}, {}, {2, 1}), {Shard(0)}, kShape);
const Layout kTo(MeshShape({2}, {}, {1, 3}), {Shard(1)}, kShape);

at::Tensor whole_tensor() { return at::arange(24, at::kDouble).view(kShape); }

/// What a rank passes; `outside` where it has no part.
at::Tensor part_or(const Layout& layout, std::int64_t rank, const at::Tensor& outside) {
  const auto part = layout.part_of(rank);
  return part ? part_of(whole_tensor(), *part) : outside;
}

TEST(RedistributeSubsetTest, OutsideOfTheDestinationTheResultIsEmpty) {
  for (const bool indirect : {false, true}) {
    for (const bool async_op : {false, true}) {
      run_ranks(
          4,
          [&](World& world) {
            if (indirect) make_all_indirect(world);
            const at::Tensor nothing = at::empty({0}, at::kDouble);
            const at::Tensor local = part_or(kFrom, world.rank(), nothing);
            const at::Tensor moved =
                wait(redistribute_local(local, kFrom, kTo, {.async_op = async_op}));
            EXPECT_TRUE(at::equal(moved, part_or(kTo, world.rank(), nothing)));
            EXPECT_EQ(moved.scalar_type(), at::kDouble);
            EXPECT_EQ(moved.device(), local.device());
          },
          test_options());
    }
  }
}

/// Calls `outsider` on rank 0, and `insider` on the others when that has returned. Had it to wait for
/// them, it would fail by the time limit.
void expect_outsider_is_first(const std::function<void()>& outsider,
                              const std::function<void(World&)>& insider) {
  std::latch returned(1);
  run_ranks(
      4,
      [&](World& world) {
        if (world.rank() != 0) {
          returned.wait();
          insider(world);
          return;
        }
        // The others must not wait for ever where this fails.
        const std::shared_ptr<void> guard(nullptr, [&](void*) { returned.count_down(); });
        outsider();
      },
      WorldOptions{.timeout = std::chrono::seconds(5)});
}

TEST(RedistributeSubsetTest, OutsideOfBothMeshesTheCallReturnsAtOnceWithoutTraffic) {
  const Layout other(kFrom.mesh(), {Replicate()}, kShape);
  for (const bool async_op : {false, true}) {
    for (const Layout& to : {kTo, other}) {
      const auto move = [&](const at::Tensor& local) {
        return redistribute_local(local, kFrom, to, {.async_op = async_op});
      };
      expect_outsider_is_first(
          [&] {
            const at::Tensor local = at::empty({0}, at::kDouble);
            CommDebugMode mode;
            const auto scope = mode.record();
            const at::Tensor moved = move(local);
            EXPECT_FALSE(is_pending(moved));
            EXPECT_TRUE(moved.is_same(local));
            EXPECT_TRUE(mode.records().empty());
          },
          [&](const World& world) {
            const at::Tensor nothing = at::empty({0}, at::kDouble);
            const at::Tensor moved = wait(move(part_or(kFrom, world.rank(), nothing)));
            EXPECT_TRUE(at::equal(moved, part_or(to, world.rank(), nothing)));
          });
    }
  }
}

TEST(RedistributeSubsetTest, ListsLeaveOutsidersAloneToo) {
  const std::vector<LayoutChange> changes(3, {kFrom, kTo});
  const auto move = [&](const at::Tensor& local) {
    return redistribute_local_all(std::vector<at::Tensor>(3, local), changes);
  };
  expect_outsider_is_first(
      [&] {
        const at::Tensor local = at::empty({0}, at::kDouble);
        CommDebugMode mode;
        const auto scope = mode.record();
        for (const auto& moved : move(local)) EXPECT_TRUE(moved.is_same(local));
        EXPECT_TRUE(mode.records().empty());
      },
      [&](const World& world) {
        const at::Tensor nothing = at::empty({0}, at::kDouble);
        for (const auto& moved : move(part_or(kFrom, world.rank(), nothing))) {
          EXPECT_TRUE(at::equal(moved, part_or(kTo, world.rank(), nothing)));
        }
      });
}

TEST(RedistributeSubsetTest, OnlyMembersOfTheMeshesHaveTraffic) {
  run_ranks(
      4,
      [&](World& world) {
        const at::Tensor local = part_or(kFrom, world.rank(), at::empty({0}, at::kDouble));
        CommDebugMode mode;
        {
          const auto scope = mode.record();
          (void)redistribute_local(local, kFrom, kTo);
        }
        EXPECT_EQ(mode.records().size(), world.rank() == 0 ? 0U : 1U) << "rank " << world.rank();
      },
      test_options());
}

}  // namespace
}  // namespace tessera::test
