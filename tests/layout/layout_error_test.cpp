// What a layout refuses, and with which words.

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "support/named_mesh.h"
#include "tessera/base/concat.h"
#include "tessera/layout/layout.h"

namespace tessera {
namespace {

using test::mesh_2x2;
using test::throws_invalid_argument;

TEST(LayoutErrorTest, TheNumberOfPlacementsMustBeThatOfMeshDims) {
  EXPECT_THAT([] { return Layout(mesh_2x2(), {Shard(0)}, {8}); },
              throws_invalid_argument("Layout: 1 placement(s) [S(0)] given for mesh [dp=2, tp=2], "
                                      "which has 2 dim(s); pass one per mesh dim"));
  EXPECT_THAT([] { return Layout(MeshShape({2}), {}, {8}); },
              throws_invalid_argument("Layout: 0 placement(s) [] given for mesh [2], which has 1 "
                                      "dim(s); pass one per mesh dim"));
}

TEST(LayoutErrorTest, SizesMustNotBeNegative) {
  EXPECT_THAT(
      [] {
        return Layout(mesh_2x2(), {Shard(0), Replicate()}, {8, -1});
      },
      throws_invalid_argument("Layout: shape [8, -1] given; sizes must be zero or more"));
}

TEST(LayoutErrorTest, TheNumberOfElementsMustFit62Bits) {
  constexpr std::int64_t kHalf = std::int64_t{1} << 31;
  EXPECT_NO_THROW(Layout(MeshShape({2}), {Shard(0)}, {kHalf, kHalf}));
  EXPECT_THAT(
      [] {
        return Layout(MeshShape({2}), {Shard(0)}, {kHalf, kHalf, 2});
      },
      throws_invalid_argument("Layout: shape [2147483648, 2147483648, 2] given; the number "
                              "of elements must fit 62 bits"));
}

TEST(LayoutErrorTest, ShardDimsMustBeWithinTheShape) {
  for (const std::int64_t dim : {-3, 2, 100}) {
    EXPECT_THAT(
        [&] {
          return Layout(mesh_2x2(), {Replicate(), Shard(dim)}, {8, 6});
        },
        throws_invalid_argument(concat("Layout: placement S(", dim,
                                       ") given for a tensor of shape [8, 6]; its 2 dim(s) "
                                       "allow shard dims -2 to 1")));
    EXPECT_THAT(
        [&] {
          return Layout(mesh_2x2(), {Replicate(), StridedShard(dim, 2)}, {8, 6});
        },
        throws_invalid_argument(concat("Layout: placement SS(", dim,
                                       ",2) given for a tensor of shape [8, 6]; its 2 "
                                       "dim(s) allow shard dims -2 to 1")));
  }
}

TEST(LayoutErrorTest, ATensorWithoutDimsCannotBeSharded) {
  for (const std::int64_t dim : {0, -1}) {
    EXPECT_THAT(
        [&] {
          return Layout(mesh_2x2(), {Replicate(), Shard(dim)}, {});
        },
        throws_invalid_argument(concat("Layout: placement S(", dim,
                                       ") given for a tensor of shape []; its 0 dim(s) "
                                       "allow no shard at all: use R")));
  }
}

TEST(LayoutErrorTest, ShardsOnOneRankMeshDimsAreCheckedToo) {
  EXPECT_THAT([] { return Layout(MeshShape({1}), {Shard(1)}, {8}); },
              throws_invalid_argument("Layout: placement S(1) given for a tensor of shape [8]; its "
                                      "1 dim(s) allow shard dims -1 to 0"));
}

TEST(LayoutErrorTest, SplitFactorsMustBeAtLeastOne) {
  for (const std::int64_t pieces : {0, -2}) {
    EXPECT_THAT(
        [&] {
          return Layout(mesh_2x2(), {StridedShard(0, pieces), Replicate()}, {8});
        },
        throws_invalid_argument(
            concat("Layout: placement SS(0,", pieces, ") given; split_factor must be at least 1")));
  }
}

TEST(LayoutErrorTest, MixedPartialsAreRefused) {
  const auto text = [](const std::string& placements, const MeshShape& mesh) {
    return concat("Layout: Mixed Partial reduce types in placements ", placements, " on ", mesh,
                  "; the result would depend on the order of reduction: use one op (sum and avg "
                  "may mix)");
  };
  const auto make = [](const MeshShape& mesh, const std::string& placements) {
    return [=] { return Layout(mesh, parse_placements(placements), {8}); };
  };
  for (const std::string mixed : {"[P(sum),P(max)]", "[P(max),P(sum)]", "[P(avg),P(product)]",
                                  "[P(min),P(max)]", "[P(bor),P(bxor)]"}) {
    EXPECT_THAT(make(mesh_2x2(), mixed), throws_invalid_argument(text(mixed, mesh_2x2())));
  }
  const MeshShape cube({2, 2, 2});
  EXPECT_THAT(make(cube, "[P(sum),P(avg),P(max)]"),
              throws_invalid_argument(text("[P(sum),P(avg),P(max)]", cube)));
  EXPECT_NO_THROW(make(cube, "[P(sum),S(0),P(avg)]")());
  EXPECT_NO_THROW(make(MeshShape({2, 1}), "[P(sum),P(max)]")());
}

TEST(LayoutErrorTest, AShardOrderMustBeAPermutationOfTheMeshDims) {
  using Order = std::vector<std::int64_t>;
  for (const Order& order : {Order{0}, Order{0, 0}, Order{1, 2}, Order{0, -1}, Order{0, 1, 2}}) {
    EXPECT_THAT(
        [&] {
          return Layout(mesh_2x2(), {Shard(0), Shard(0)}, {8}, order);
        },
        throws_invalid_argument(concat("Layout: shard_order (", joined(order),
                                       ") given for mesh [dp=2, tp=2]; pass every mesh dim "
                                       "once, the one that splits first in front")));
  }
}

TEST(LayoutErrorTest, SplitsOfATensorDimOutsideTheShapeAreRefused) {
  const Layout layout(mesh_2x2(), {Shard(0), Replicate()}, {8, 6});
  for (const std::int64_t dim : {-1, 2}) {
    EXPECT_THAT(
        [&] { return layout.splits(dim); },
        throws_invalid_argument(concat("Layout: tensor dim ", dim,
                                       " given; [8,6][S(0),R] on [dp=2, tp=2] has 2 dim(s), "
                                       "numbered from 0")));
    EXPECT_THROW((void)layout.owned(dim, 0), InvalidArgument);
    EXPECT_THROW((void)layout.local_size(dim, 0), InvalidArgument);
  }
}

TEST(LayoutErrorTest, PositionsOutsideTheMeshAreRefused) {
  const Layout layout(mesh_2x2(), {Shard(0), Replicate()}, {8, 6});
  for (const std::int64_t position : {-3, 4, 99}) {
    const auto refusal =
        concat("Layout: position ", position, " given; [dp=2, tp=2] has positions 0 to 3");
    EXPECT_THAT([&] { return layout.part_at(position); }, throws_invalid_argument(refusal));
    EXPECT_THAT([&] { return layout.owned(0, position); }, throws_invalid_argument(refusal));
    EXPECT_THAT([&] { return layout.local_size(0, position); }, throws_invalid_argument(refusal));
    EXPECT_THAT([&] { return layout.local_shape(position); }, throws_invalid_argument(refusal));
  }
}

TEST(LayoutErrorTest, PartsAtACoordinateOutsideTheMeshAreRefused) {
  const Layout layout(mesh_2x2(), {Shard(0), Replicate()}, {8});
  EXPECT_THAT(
      [&] {
        return layout.part_at({0, 2});
      },
      throws_invalid_argument("MeshShape::position_at: coordinate (0, 2) given; "
                              "[dp=2, tp=2] has indices 0 to 1 in mesh dim tp"));
}

}  // namespace
}  // namespace tessera
