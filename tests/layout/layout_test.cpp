#include "tessera/layout/layout.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/layout_oracle.h"
#include "support/named_mesh.h"
#include "tessera/base/concat.h"

namespace tessera {
namespace {

using test::Indices;
using test::mesh_2x2;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The indices of tensor dim 0 at every position of the mesh.
std::vector<Indices> rows(const Layout& layout) {
  std::vector<Indices> all;
  for (std::int64_t position = 0; position < layout.mesh().num_ranks(); ++position) {
    all.push_back(test::listed(layout.owned(0, position)));
  }
  return all;
}

TEST(LayoutTest, KeepsWhatItWasMadeOf) {
  const Layout layout(mesh_2x2(), {Shard(0), Replicate()}, {8, 6});
  EXPECT_EQ(layout.mesh(), mesh_2x2());
  EXPECT_EQ(layout.placements(), (Placements{Shard(0), Replicate()}));
  EXPECT_EQ(layout.shape(), (Shape{8, 6}));
  EXPECT_EQ(layout.ndim(), 2);
  EXPECT_EQ(layout.numel(), 48);
}

TEST(LayoutTest, FiveOverFourAreTwoTwoOneAndNone) {
  const Layout layout(MeshShape({4}), {Shard(0)}, {5});
  EXPECT_THAT(rows(layout), ElementsAre(Indices{0, 1}, Indices{2, 3}, Indices{4}, Indices{}));
  EXPECT_EQ(layout.local_size(0, 3), 0);
  EXPECT_EQ(layout.local_shape(2), (Shape{1}));
}

TEST(LayoutTest, ReplicateAndPartialHoldEverything) {
  const Layout layout(mesh_2x2(), {Replicate(), Partial()}, {3});
  EXPECT_THAT(rows(layout), ::testing::Each(Indices{0, 1, 2}));
}

TEST(LayoutTest, TwoMeshDimsCanShardTwoTensorDims) {
  const Layout layout(mesh_2x2(), {Shard(0), Shard(1)}, {4, 6});
  EXPECT_EQ(concat(layout.part_at({1, 0})), "[2, 4) x [0, 3)");
  EXPECT_EQ(layout.local_shape(2), (Shape{2, 3}));
  EXPECT_EQ(layout.local_numel(2), 6);
}

TEST(LayoutTest, NestedShardsSplitFromLeftToRight) {
  const Layout layout(mesh_2x2(), {Shard(0), Shard(0)}, {8});
  EXPECT_THAT(rows(layout),
              ElementsAre(Indices{0, 1}, Indices{2, 3}, Indices{4, 5}, Indices{6, 7}));
}

TEST(LayoutTest, NestedShardsSplitWhatIsLeftNotTheWhole) {
  // 5 rows: dp leaves 3 and 2, tp splits those into 2+1 and 1+1. One cut of four is 2+2+1+0.
  const Layout layout(mesh_2x2(), {Shard(0), Shard(0)}, {5});
  EXPECT_THAT(rows(layout), ElementsAre(Indices{0, 1}, Indices{2}, Indices{3}, Indices{4}));
}

TEST(LayoutTest, ShardOrderSaysWhoSplitsFirst) {
  const Layout layout(mesh_2x2(), {Shard(0), Shard(0)}, {8}, {1, 0});
  EXPECT_EQ(test::listed(layout.part_at({0, 1}).dims[0]), (Indices{4, 5}));
  EXPECT_THAT(rows(layout),
              ElementsAre(Indices{0, 1}, Indices{4, 5}, Indices{2, 3}, Indices{6, 7}));
}

TEST(LayoutTest, AStridedShardHoldsItsChunkOfEveryPiece) {
  const Layout layout(MeshShape({2}), {StridedShard(0, 2)}, {8});
  EXPECT_THAT(rows(layout), ElementsAre(Indices{0, 1, 4, 5}, Indices{2, 3, 6, 7}));
}

TEST(LayoutTest, AStridedShardOfOnePieceIsAShard) {
  const Layout strided(MeshShape({3}), {StridedShard(-1, 1)}, {7});
  EXPECT_EQ(strided.placements(), Placements{Shard(0)});
  EXPECT_EQ(strided, Layout(MeshShape({3}), {Shard(0)}, {7}));
}

TEST(LayoutTest, FsdpOverTensorParallelIsStridedOrInReverseOrderWhenEven) {
  for (std::int64_t dp = 1; dp <= 4; ++dp) {
    for (std::int64_t tp = 1; tp <= 4; ++tp) {
      for (const std::int64_t each : {1, 2, 3}) {
        const MeshShape mesh({dp, tp}, {"dp", "tp"});
        const Shape shape{dp * tp * each};
        EXPECT_EQ(rows(Layout(mesh, {StridedShard(0, tp), Shard(0)}, shape)),
                  rows(Layout(mesh, {Shard(0), Shard(0)}, shape, {1, 0})))
            << mesh << " with " << each << " each";
      }
    }
  }
}

TEST(LayoutTest, FsdpOverTensorParallelIsNotStridedWhenUneven) {
  // 7 rows in pieces {0,1,2,3} {4,5,6}: index 2 of dp gets nothing of the first and {6} of the
  // second, which tp then deals anew, from its own first rank on.
  const MeshShape mesh({3, 2}, {"dp", "tp"});
  const Layout strided(mesh, {StridedShard(0, 2), Shard(0)}, {7});
  const Layout ordered(mesh, {Shard(0), Shard(0)}, {7}, {1, 0});
  EXPECT_EQ(test::listed(strided.part_at({2, 0}).dims[0]), Indices{6});
  EXPECT_EQ(test::listed(strided.part_at({2, 1}).dims[0]), Indices{});
  EXPECT_EQ(test::listed(ordered.part_at({2, 0}).dims[0]), Indices{});
  EXPECT_EQ(test::listed(ordered.part_at({2, 1}).dims[0]), Indices{6});
}

TEST(LayoutTest, NegativeDimsCountFromTheEnd) {
  const Layout layout(mesh_2x2(), {Shard(-1), StridedShard(-2, 2)}, {8, 6});
  EXPECT_EQ(layout.placements(), (Placements{Shard(1), StridedShard(0, 2)}));
  EXPECT_EQ(layout, Layout(mesh_2x2(), {Shard(1), StridedShard(0, 2)}, {8, 6}));
}

TEST(LayoutTest, ATensorWithoutDimsHasOneElementOnEveryRank) {
  const Layout layout(mesh_2x2(), {Replicate(), Partial()}, {});
  EXPECT_EQ(layout.ndim(), 0);
  EXPECT_EQ(layout.numel(), 1);
  EXPECT_EQ(layout.local_numel(3), 1);
  EXPECT_EQ(layout.local_shape(3), Shape{});
  EXPECT_EQ(layout.part_at(3).numel(), 1);
  EXPECT_EQ(concat(layout.part_at(3)), "scalar");
}

TEST(LayoutTest, AnEmptyTensorIsEmptyOnEveryRank) {
  const Layout layout(mesh_2x2(), {Shard(0), StridedShard(1, 3)}, {0, 6});
  EXPECT_EQ(layout.numel(), 0);
  for (std::int64_t position = 0; position < 4; ++position) {
    EXPECT_EQ(layout.local_numel(position), 0);
    EXPECT_EQ(layout.local_shape(position), (Shape{0, 3}));
    EXPECT_TRUE(layout.part_at(position).dims[0].empty());
  }
}

TEST(LayoutTest, AMeshWithoutDimsHoldsEverythingOnOneRank) {
  const Layout layout(MeshShape(std::vector<std::int64_t>{}), {}, {3, 2});
  EXPECT_EQ(layout.local_shape(0), (Shape{3, 2}));
  EXPECT_EQ(layout.part_of(1), std::nullopt);
}

TEST(LayoutTest, PartsFollowTheRankMap) {
  const Layout layout(MeshShape({2}, {}, {7, 3}), {Shard(0)}, {4});
  EXPECT_EQ(layout.part_of(7), layout.part_at(0));
  EXPECT_EQ(layout.part_of(3), layout.part_at(Coordinate{1}));
  EXPECT_EQ(layout.part_of(0), std::nullopt);
  EXPECT_EQ(layout.part_of(-1), std::nullopt);
}

TEST(LayoutTest, SplitsAreTheCutsOfADimOutermostFirst) {
  const MeshShape mesh({2, 1, 3});
  const Layout layout(mesh, {Shard(1), Shard(1), StridedShard(1, 4)}, {8, 8}, {2, 1, 0});
  EXPECT_THAT(layout.splits(0), IsEmpty());
  EXPECT_THAT(layout.splits(1), ElementsAre(Split{2, 3, 4}, Split{0, 2, 1}));
}

TEST(LayoutTest, TheReduceOpIsTheOneOfItsPartials) {
  const auto op = [](Placements placements) {
    return Layout(mesh_2x2(), std::move(placements), {4}).reduce_op();
  };
  EXPECT_EQ(op({Replicate(), Shard(0)}), std::nullopt);
  EXPECT_EQ(op({Partial(ReduceOp::max), Shard(0)}), ReduceOp::max);
  EXPECT_EQ(op({Partial(ReduceOp::avg), Partial(ReduceOp::avg)}), ReduceOp::avg);
  EXPECT_EQ(op({Partial(ReduceOp::bor), Partial(ReduceOp::bor)}), ReduceOp::bor);
}

TEST(LayoutTest, SumAndAvgMixToASum) {
  const MeshShape mesh({2, 2, 2});
  const Partial sum(ReduceOp::sum);
  const Partial avg(ReduceOp::avg);
  for (const Placements& mixed :
       {Placements{sum, avg, avg}, Placements{avg, sum, avg}, Placements{avg, avg, sum}}) {
    EXPECT_EQ(Layout(mesh, mixed, {4}).reduce_op(), ReduceOp::sum) << to_string(mixed);
  }
}

TEST(LayoutTest, OneRankIsNeverPartial) {
  const MeshShape mesh({1, 2});
  EXPECT_FALSE(Layout(mesh, {Partial(), Replicate()}, {4}).has_partial());
  EXPECT_TRUE(Layout(mesh, {Replicate(), Partial()}, {4}).has_partial());
  EXPECT_EQ(Layout(mesh, {Partial(ReduceOp::max), Partial()}, {4}).reduce_op(), ReduceOp::sum);
}

TEST(LayoutTest, PrintsShapePlacementsAndMesh) {
  EXPECT_EQ(Layout(mesh_2x2(), {Shard(0), Replicate()}, {8, 8}).to_string(),
            "[8,8][S(0),R] on [dp=2, tp=2]");
  EXPECT_EQ(concat(Layout(MeshShape({2}), {Partial()}, {})), "[][P(sum)] on [2]");
}

TEST(LayoutTest, PrintsAShardOrderThatIsNotLeftToRight) {
  const Placements both{Shard(0), Shard(0)};
  EXPECT_EQ(Layout(mesh_2x2(), both, {8}, {1, 0}).to_string(),
            "[8][S(0),S(0)]{dim 0: tp,dp} on [dp=2, tp=2]");
  EXPECT_EQ(Layout(mesh_2x2(), both, {8}, {0, 1}).to_string(), "[8][S(0),S(0)] on [dp=2, tp=2]");
  const Placements four{Shard(0), Shard(1), Shard(0), Shard(1)};
  EXPECT_EQ(Layout(MeshShape({2, 2, 2, 2}), four, {8, 8}, {3, 2, 1, 0}).to_string(),
            "[8,8][S(0),S(1),S(0),S(1)]{dim 0: 2,0}{dim 1: 3,1} on [2, 2, 2, 2]");
}

TEST(LayoutTest, AShardOrderWithoutEffectIsForgotten) {
  const Placements one{Shard(0), Replicate()};
  EXPECT_EQ(Layout(mesh_2x2(), one, {8}, {1, 0}), Layout(mesh_2x2(), one, {8}));
  const Placements apart{Shard(0), Shard(1)};
  EXPECT_EQ(Layout(mesh_2x2(), apart, {8, 8}, {1, 0}), Layout(mesh_2x2(), apart, {8, 8}));
}

TEST(LayoutTest, LayoutsAreEqualWhenTheirContentsAre) {
  const Layout layout(mesh_2x2(), {Shard(0), Shard(0)}, {8});
  const Layout same(MeshShape({2, 2}, {"dp", "tp"}), {Shard(-1), Shard(0)}, {8}, {0, 1});
  EXPECT_EQ(layout, same);
  EXPECT_EQ(layout.hash(), same.hash());
  EXPECT_NE(layout, Layout(mesh_2x2(), {Shard(0), Shard(0)}, {9}));
  EXPECT_NE(layout, Layout(mesh_2x2(), {Shard(0), Shard(0)}, {8}, {1, 0}));
  EXPECT_NE(layout, Layout(mesh_2x2(), {Shard(0), StridedShard(0, 2)}, {8}));
  EXPECT_NE(layout, Layout(MeshShape({2, 2}), {Shard(0), Shard(0)}, {8}));
}

TEST(LayoutTest, LayoutsAreKeysOfHashTables) {
  std::unordered_set<Layout> seen;
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t rows = 0; rows < 10; ++rows) {
      seen.insert(Layout(mesh_2x2(), {Shard(0), Replicate()}, {rows}));
    }
  }
  EXPECT_EQ(seen.size(), 10U);
}

TEST(LayoutTest, EquivalentLayoutsDifferInNamesAndSpellingOnly) {
  const Layout layout(mesh_2x2(), {Shard(0), Partial()}, {8});
  EXPECT_TRUE(layout.equivalent(layout));
  EXPECT_TRUE(layout.equivalent(Layout(MeshShape({2, 2}), {StridedShard(0, 1), Partial()}, {8})));
  EXPECT_FALSE(layout.equivalent(Layout(mesh_2x2(), {Shard(0), Partial()}, {9})));
  EXPECT_FALSE(layout.equivalent(Layout(mesh_2x2(), {Shard(0), Replicate()}, {8})));
  EXPECT_FALSE(layout.equivalent(Layout(mesh_2x2(), {Shard(0), Partial(ReduceOp::avg)}, {8})));
  EXPECT_FALSE(layout.equivalent(Layout(mesh_2x2(), {Partial(), Shard(0)}, {8})));
  EXPECT_FALSE(
      layout.equivalent(Layout(MeshShape({2, 2}, {}, {0, 2, 1, 3}), {Shard(0), Partial()}, {8})));
}

TEST(LayoutTest, ShardsOfDifferentDimsAreNotEquivalent) {
  const MeshShape mesh({2});
  EXPECT_FALSE(Layout(mesh, {Shard(0)}, {4, 4}).equivalent(Layout(mesh, {Shard(1)}, {4, 4})));
}

TEST(LayoutTest, PlacementsOfOneRankMeshDimsDoNotCountForEquivalence) {
  const MeshShape mesh({1, 2});
  const Layout layout(mesh, {Shard(0), Shard(0)}, {8});
  EXPECT_TRUE(layout.equivalent(Layout(mesh, {Partial(ReduceOp::max), Shard(0)}, {8})));
  EXPECT_TRUE(layout.equivalent(Layout(mesh, {StridedShard(0, 3), Shard(0)}, {8}, {1, 0})));
}

TEST(PartTest, PrintsTheProductOfItsDims) {
  const Layout layout(MeshShape({2}), {StridedShard(1, 2)}, {4, 8});
  EXPECT_EQ(concat(layout.part_at(0)), "[0, 4) x [0, 2)+[4, 6)");
  EXPECT_EQ(concat(Layout(MeshShape({2}), {Shard(0)}, {1}).part_at(1)), "{}");
}

}  // namespace
}  // namespace tessera
