#include "tessera/layout/box_map.h"

#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "support/random_boxes.h"
#include "tessera/base/concat.h"

namespace tessera::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Box box(std::vector<Extent> dims) { return Box{std::move(dims)}; }

TEST(BoxTest, PrintsItsExtents) {
  EXPECT_EQ(concat(box({{0, 4}, {2, 4}})), "[0, 4) x [2, 6)");
  EXPECT_EQ(concat(box({})), "scalar");
}

TEST(BoxTest, CountsItsElements) {
  EXPECT_EQ(box({{0, 4}, {2, 3}}).numel(), 12);
  EXPECT_EQ(box({{0, 4}, {2, 0}}).numel(), 0);
  EXPECT_EQ(box({}).numel(), 1);
  EXPECT_THAT(box({{0, 4}, {2, 3}}).shape(), ElementsAre(4, 3));
}

TEST(BoxTest, IntersectsInEveryDim) {
  EXPECT_EQ(intersection(box({{0, 4}, {2, 4}}), box({{3, 4}, {0, 3}})), box({{3, 1}, {2, 1}}));
  EXPECT_EQ(intersection(box({{0, 4}, {2, 4}}), box({{4, 4}, {0, 3}})), std::nullopt);
  EXPECT_EQ(intersection(box({{0, 0}}), box({{0, 3}})), std::nullopt);
  EXPECT_EQ(intersection(box({}), box({})), box({}));
}

TEST(BoxMapTest, NumbersThePiecesOfEachRank) {
  const BoxMap map({6}, {{box({{0, 2}}), 1}, {box({{2, 1}}), 0}, {box({{3, 3}}), 1}});
  EXPECT_EQ(map.piece(0), 0U);
  EXPECT_EQ(map.piece(1), 0U);
  EXPECT_EQ(map.piece(2), 1U);
  EXPECT_EQ(map.most_pieces(), 2U);
  EXPECT_THAT(map.held_by(1), ElementsAre(box({{0, 2}}), box({{3, 3}})));
  EXPECT_THAT(map.held_by(7), IsEmpty());
}

TEST(BoxMapTest, RefusesWhatDoesNotFitTheShape) {
  EXPECT_THAT([] { return BoxMap({-1}, {}); },
              throws_invalid_argument("BoxMap: a size of -1 given; sizes must be >= 0"));
  EXPECT_THAT(
      ([] {
        return BoxMap({4, 4}, {{Box{{{0, 4}}}, 0}});
      }),
      throws_invalid_argument("BoxMap: box [0, 4) given for shape [4,4]; give one extent per dim"));
  EXPECT_THAT(
      ([] {
        return BoxMap({4}, {{Box{{{2, 3}}}, 0}});
      }),
      throws_invalid_argument("BoxMap: box [2, 5) given, which reaches outside of shape [4]"));
  EXPECT_THAT(
      ([] {
        return BoxMap({4}, {{Box{{{-1, 3}}}, 0}});
      }),
      throws_invalid_argument("BoxMap: box [-1, 2) given, which reaches outside of shape [4]"));
  EXPECT_THAT(([] {
                return BoxMap({4}, {{Box{{{0, 4}}}, -2}});
              }),
              throws_invalid_argument("BoxMap: rank -2 given; ranks must be >= 0"));
}

TEST(BoxMapTest, OfALayoutHasABoxForEveryRankThatHoldsNothing) {
  const BoxMap map = BoxMap::of(Layout(MeshShape({4}, {}, {3, 2, 1, 0}), {Shard(0)}, {5}));
  EXPECT_THAT(map.boxes(), ElementsAre(OwnedBox{box({{0, 2}}), 3}, OwnedBox{box({{2, 2}}), 2},
                                       OwnedBox{box({{4, 1}}), 1}, OwnedBox{box({{5, 0}}), 0}));
}

TEST(BoxMapTest, RefusesContributions) {
  EXPECT_THAT([] { return BoxMap::of(Layout(MeshShape({2}), {Partial()}, {4})); },
              throws_invalid_argument("BoxMap: [4][P(sum)] on [2] given; contributions own no "
                                      "elements, so reduce them first"));
}

/// Every element that a rank's part has is in exactly one of its boxes, in the part's order.
TEST(BoxMapTest, OfRandomLayoutsHoldsWhatTheyDo) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Layout layout = random_layout(random, {.shape = {.max_dims = 3, .max_size = 7}});
    const BoxMap map = BoxMap::of(layout);
    for (const auto rank : layout.mesh().ranks()) {
      const Part part = *layout.part_of(rank);
      std::int64_t numel = 0;
      for (const auto& held : map.held_by(rank)) {
        numel += held.numel();
        for (std::size_t d = 0; d < held.dims.size() && held.numel() > 0; ++d) {
          EXPECT_EQ(IndexSet(held.dims[d]).intersect(part.dims[d]).size(), held.dims[d].size);
        }
      }
      EXPECT_EQ(numel, part.numel());
    }
  }
}

TEST(FindOverlapTest, FindsTheFirstPair) {
  const std::vector<OwnedBox> boxes{
      {box({{0, 2}, {0, 2}}), 0}, {box({{2, 2}, {0, 2}}), 1}, {box({{1, 2}, {1, 1}}), 2}};
  const auto found = find_overlap(boxes);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->first, 0U);
  EXPECT_EQ(found->second, 2U);
}

TEST(FindOverlapTest, EmptyBoxesOverlapNothing) {
  EXPECT_FALSE(find_overlap({{box({{0, 4}}), 0}, {box({{2, 0}}), 1}}).has_value());
  EXPECT_FALSE(find_overlap({}).has_value());
  EXPECT_TRUE(find_overlap({{box({}), 0}, {box({}), 1}}).has_value());
}

TEST(FindOverlapTest, AgreesWithComparingAllPairs) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 9});
    auto boxes = random_tiling(random, shape, random.between(0, 8), {0, 1, 2});
    EXPECT_FALSE(find_overlap(boxes).has_value());
    if (shape.empty()) continue;
    // Let one of them grow backwards, over its neighbours if there are some.
    auto& grown = boxes[static_cast<std::size_t>(random.between(0, std::ssize(boxes) - 1))];
    for (auto& extent : grown.box.dims) {
      const std::int64_t by = random.between(0, extent.begin);
      extent = {extent.begin - by, extent.size + by};
    }
    std::optional<std::pair<std::size_t, std::size_t>> first;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      for (std::size_t j = i + 1; j < boxes.size() && !first; ++j) {
        if (intersection(boxes[i].box, boxes[j].box)) first = {i, j};
      }
    }
    const auto found = find_overlap(boxes);
    ASSERT_EQ(found.has_value(), first.has_value());
    if (found) {
      EXPECT_EQ(std::pair(found->first, found->second), *first);
    }
  }
}

TEST(FindLayoutTest, FindsGridsInAnyOrderOfRanks) {
  const BoxMap quarters({4, 6}, {{box({{2, 2}, {3, 3}}), 3},
                                 {box({{0, 2}, {0, 3}}), 2},
                                 {box({{0, 2}, {3, 3}}), 0},
                                 {box({{2, 2}, {0, 3}}), 1}});
  EXPECT_EQ(find_layout(quarters),
            Layout(MeshShape({2, 2}, {}, {2, 0, 1, 3}), {Shard(0), Shard(1)}, {4, 6}));
  EXPECT_EQ(find_layout(BoxMap::on_one_rank({4}, 2)),
            Layout(MeshShape({1}, {}, {2}), {Replicate()}, {4}));
  EXPECT_EQ(find_layout(BoxMap::on_one_rank({}, 1)),
            Layout(MeshShape({1}, {}, {1}), {Replicate()}, {}));
}

TEST(FindLayoutTest, FindsNoneForOtherBoxes) {
  // Cut elsewhere than in the middle.
  EXPECT_EQ(find_layout(BoxMap({4}, {{box({{0, 1}}), 0}, {box({{1, 3}}), 1}})), std::nullopt);
  // Two boxes on one rank.
  EXPECT_EQ(find_layout(BoxMap({4}, {{box({{0, 2}}), 0}, {box({{2, 2}}), 0}})), std::nullopt);
  // No grid.
  EXPECT_EQ(find_layout(BoxMap({2, 2}, {{box({{0, 1}, {0, 2}}), 0},
                                        {box({{1, 1}, {0, 1}}), 1},
                                        {box({{1, 1}, {1, 1}}), 2}})),
            std::nullopt);
}

TEST(FindLayoutTest, GivesEveryRankWhatTheMapDoes) {
  int found_layouts = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Layout layout = random_layout(random, {.mesh = {.max_dims = 2, .rank_maps = true},
                                                 .shape = {.max_dims = 3, .max_size = 7},
                                                 .placement = {.max_split_factor = 0}});
    const BoxMap map = BoxMap::of(layout);
    const auto found = find_layout(map);
    if (!found) continue;
    ++found_layouts;
    for (const auto& owned : map.boxes()) {
      const auto part = found->part_of(owned.rank);
      ASSERT_TRUE(part.has_value());
      EXPECT_EQ(part->shape(), owned.box.shape());
      if (owned.box.numel() > 0) {
        EXPECT_EQ(*part, *layout.part_of(owned.rank));
      }
    }
  }
  EXPECT_GT(found_layouts, 30);
}

}  // namespace
}  // namespace tessera::test
