#include "tessera/layout/mesh_shape.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "layout/layout_oracle.h"
#include "support/random_layout.h"
#include "tessera/base/concat.h"

namespace tessera {
namespace {

using test::throws_invalid_argument;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Sizes = std::vector<std::int64_t>;
using Ranks = std::vector<std::int64_t>;

TEST(MeshShapeTest, RanksAreNumberedRowMajor) {
  const MeshShape mesh({2, 4}, {"dp", "tp"});
  EXPECT_EQ(mesh.ndim(), 2);
  EXPECT_EQ(mesh.num_ranks(), 8);
  EXPECT_EQ(mesh.size(0), 2);
  EXPECT_EQ(mesh.size(1), 4);
  EXPECT_EQ(mesh.stride(0), 4);
  EXPECT_EQ(mesh.stride(1), 1);
  EXPECT_EQ(mesh.rank_at({1, 2}), 6);
  EXPECT_EQ(mesh.coordinate_of(6), (Coordinate{1, 2}));
  EXPECT_EQ(mesh.max_rank(), 7);
  EXPECT_THAT(mesh.ranks(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(MeshShapeTest, DimensionsAreFoundByName) {
  const MeshShape mesh({2, 4}, {"dp", "tp"});
  EXPECT_THAT(mesh.names(), ElementsAre("dp", "tp"));
  EXPECT_EQ(mesh.dim_named("dp"), 0);
  EXPECT_EQ(mesh.dim_named("tp"), 1);
  EXPECT_EQ(mesh.dim_label(1), "tp");
}

TEST(MeshShapeTest, UnnamedDimensionsAreLabelledByNumber) {
  const MeshShape mesh({2, 4});
  EXPECT_THAT(mesh.names(), IsEmpty());
  EXPECT_EQ(mesh.dim_label(1), "1");
}

TEST(MeshShapeTest, NoDimensionsAreAMeshOfOneRank) {
  const MeshShape mesh(Sizes{});
  EXPECT_EQ(mesh.ndim(), 0);
  EXPECT_EQ(mesh.num_ranks(), 1);
  EXPECT_EQ(mesh.rank_at(Coordinate{}), 0);
  EXPECT_EQ(mesh.coordinate_of(0), Coordinate{});
  EXPECT_FALSE(mesh.contains(1));
  EXPECT_EQ(mesh.to_string(), "[]");
}

TEST(MeshShapeTest, AnyRanksMaySitAnywhere) {
  const MeshShape mesh({2, 2}, {"dp", "tp"}, {7, 0, 2, 5});
  EXPECT_EQ(mesh.rank_at({0, 0}), 7);
  EXPECT_EQ(mesh.rank_at({1, 0}), 2);
  EXPECT_EQ(mesh.rank_at(3), 5);
  EXPECT_EQ(mesh.position_of(7), 0);
  EXPECT_EQ(mesh.coordinate_of(0), (Coordinate{0, 1}));
  EXPECT_EQ(mesh.max_rank(), 7);
  EXPECT_THAT(mesh.ranks(), ElementsAre(7, 0, 2, 5));
}

TEST(MeshShapeTest, RanksOutsideHaveNoPosition) {
  const MeshShape mapped({2, 2}, {}, {7, 0, 2, 5});
  for (const std::int64_t rank : {-1, 1, 3, 4, 6, 8}) {
    EXPECT_EQ(mapped.position_of(rank), std::nullopt) << rank;
    EXPECT_EQ(mapped.coordinate_of(rank), std::nullopt) << rank;
    EXPECT_FALSE(mapped.contains(rank)) << rank;
  }
  const MeshShape plain({2, 2});
  EXPECT_FALSE(plain.contains(-1));
  EXPECT_TRUE(plain.contains(0));
  EXPECT_TRUE(plain.contains(3));
  EXPECT_FALSE(plain.contains(4));
}

TEST(MeshShapeTest, PositionsCoordinatesAndRanksAreOneToOneOnAnyMesh) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    test::Random random(seed);
    const MeshShape mesh = test::random_mesh(random, {.max_ranks = 625, .rank_maps = true});
    const auto ranks = mesh.ranks();
    std::int64_t position = 0;
    for (const auto& coordinate : test::all_coordinates(mesh.sizes())) {
      const std::int64_t rank = ranks[static_cast<std::size_t>(position)];
      ASSERT_EQ(mesh.coordinate_at(position), coordinate) << mesh;
      ASSERT_EQ(mesh.position_at(coordinate), position) << mesh;
      ASSERT_EQ(mesh.rank_at(position), rank) << mesh;
      ASSERT_EQ(mesh.rank_at(coordinate), rank) << mesh;
      ASSERT_EQ(mesh.position_of(rank), position) << mesh;
      ASSERT_EQ(mesh.coordinate_of(rank), coordinate) << mesh;
      ++position;
    }
    ASSERT_EQ(position, mesh.num_ranks()) << mesh;
  }
}

TEST(MeshShapeTest, PrintsNamesAndSizes) {
  EXPECT_EQ(MeshShape({2, 2}, {"dp", "tp"}).to_string(), "[dp=2, tp=2]");
  EXPECT_EQ(concat(MeshShape({2, 4})), "[2, 4]");
}

TEST(MeshShapeTest, PrintsRanksOnlyWhenTheyDoNotCountUpFromZero) {
  EXPECT_EQ(MeshShape({4}, {"tp"}, {0, 1, 2, 3}).to_string(), "[tp=4]");
  EXPECT_EQ(MeshShape({4}, {"tp"}, {4, 5, 6, 7}).to_string(), "[tp=4]@4..7");
  EXPECT_EQ(MeshShape({3}, {}, {0, 2, 5}).to_string(), "[3]@{0,2,5}");
  EXPECT_EQ(MeshShape({2}, {}, {1, 0}).to_string(), "[2]@{1,0}");
  EXPECT_EQ(MeshShape({1}, {}, {3}).to_string(), "[1]@{3}");
}

TEST(MeshShapeTest, PrintsTheFirstSixteenOfManyScatteredRanks) {
  Ranks even;
  for (std::int64_t i = 0; i < 17; ++i) even.push_back(2 * i);
  EXPECT_EQ(MeshShape({17}, {}, even).to_string(),
            "[17]@{0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,...}");
  even.pop_back();
  EXPECT_EQ(MeshShape({16}, {}, even).to_string(),
            "[16]@{0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30}");
}

TEST(MeshShapeTest, ReadsNamedAndUnnamedSizes) {
  EXPECT_EQ(MeshShape::parse("dp=2,tp=4"), MeshShape({2, 4}, {"dp", "tp"}));
  EXPECT_EQ(MeshShape::parse(" [ dp = 2 , tp_1 = 4 ] "), MeshShape({2, 4}, {"dp", "tp_1"}));
  EXPECT_EQ(MeshShape::parse("2,4"), MeshShape({2, 4}));
  EXPECT_EQ(MeshShape::parse("[]"), MeshShape(Sizes{}));
  EXPECT_EQ(MeshShape::parse(""), MeshShape(Sizes{}));
}

TEST(MeshShapeTest, ReadsRanksBehindTheSizes) {
  EXPECT_EQ(MeshShape::parse("tp=4@4..7"), MeshShape({4}, {"tp"}, {4, 5, 6, 7}));
  EXPECT_EQ(MeshShape::parse("[3] @ { 0 , 2 , 5 }"), MeshShape({3}, {}, {0, 2, 5}));
  EXPECT_EQ(MeshShape::parse("[1]@{3}"), MeshShape({1}, {}, {3}));
  EXPECT_EQ(MeshShape::parse("1@3..3"), MeshShape({1}, {}, {3}));
  EXPECT_EQ(MeshShape::parse("[]@{5}"), MeshShape({}, {}, {5}));
  EXPECT_EQ(MeshShape::parse("2,2@0..3"), MeshShape({2, 2}));
}

TEST(MeshShapeTest, WhatIsPrintedIsReadBack) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    test::Random random(seed);
    const MeshShape mesh = test::random_mesh(random, {.max_ranks = 16, .rank_maps = true});
    EXPECT_EQ(MeshShape::parse(mesh.to_string()), mesh) << mesh;
  }
}

/// What `MeshShape::parse` says of `text`.
std::string refused_mesh(const std::string& text) {
  return "MeshShape::parse: \"" + text +
         "\" given; pass sizes with names such as dp=2,tp=4, or sizes alone such as 2,4, and "
         "behind "
         "them, where the ranks are not 0, 1, 2, ..., @4..11 or @{0,2,5}";
}

TEST(MeshShapeTest, OtherTextIsRefusedWithExamples) {
  for (const std::string text :
       {"dp", "dp=", "=2", "dp=2,", ",2", "2,,4", "[2", "2]", "[2]]", "[2,]", "dp=2,4", "2,dp=4",
        "2;4", "dp=x", "1dp=2", "dp=2 tp=4", "99999999999999999999"}) {
    EXPECT_THAT([&] { return MeshShape::parse(text); },
                throws_invalid_argument(refused_mesh(text)));
  }
}

TEST(MeshShapeTest, OtherTextBehindTheSizesIsRefusedWithExamples) {
  for (const std::string text :
       {"2@", "2@4", "2@4.5", "2@4..", "2@5..4", "2@{}", "2@{0,1", "2@{0,}", "2@0,1", "2@{0,1}x",
        "@0..1", "[2@0..1]", "2@0..9223372036854775807", "17@{0,2,...}"}) {
    EXPECT_THAT([&] { return MeshShape::parse(text); },
                throws_invalid_argument(refused_mesh(text)));
  }
}

TEST(MeshShapeTest, ParsedSizesNamesAndRanksAreCheckedLikeGivenOnes) {
  EXPECT_THAT([] { return MeshShape::parse("dp=0"); },
              throws_invalid_argument(
                  "MeshShape: sizes [0] given; every mesh dim must have at least 1 rank"));
  EXPECT_THAT([] { return MeshShape::parse("dp=2,dp=2"); },
              throws_invalid_argument(
                  "MeshShape: name \"dp\" given twice; Each mesh_dim_name must be unique"));
  EXPECT_THAT([] { return MeshShape::parse("2@{-1,0}"); },
              throws_invalid_argument("MeshShape: rank -1 given; ranks are numbered from 0"));
  EXPECT_THAT([] { return MeshShape::parse("4@4..6"); },
              throws_invalid_argument("MeshShape: 3 rank(s) given for sizes [4], which need 4; "
                                      "pass one rank per position, in row-major order, or none"));
}

TEST(MeshShapeTest, MeshesAreEqualWhenSizesNamesAndRanksAre) {
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  const MeshShape same({2, 2}, {"dp", "tp"}, {0, 1, 2, 3});
  EXPECT_EQ(mesh, same);
  EXPECT_EQ(mesh.hash(), same.hash());
  EXPECT_EQ(std::hash<MeshShape>{}(mesh), same.hash());
  for (const auto& other :
       {MeshShape({2, 2}), MeshShape({2, 2}, {"tp", "dp"}), MeshShape({4}, {"dp"}),
        MeshShape({2, 2}, {"dp", "tp"}, {0, 2, 1, 3}),
        MeshShape({2, 2}, {"dp", "tp"}, {1, 2, 3, 4}), MeshShape({2, 2, 1}, {"dp", "tp", "pp"})}) {
    EXPECT_NE(mesh, other);
    EXPECT_NE(mesh.hash(), other.hash()) << other;
  }
}

TEST(MeshShapeTest, SameRanksLooksPastTheNamesOnly) {
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  EXPECT_TRUE(mesh.same_ranks(mesh));
  EXPECT_TRUE(mesh.same_ranks(MeshShape({2, 2})));
  EXPECT_FALSE(mesh.same_ranks(MeshShape({4})));
  EXPECT_FALSE(mesh.same_ranks(MeshShape({2, 2}, {"dp", "tp"}, {0, 2, 1, 3})));
}

TEST(MeshShapeTest, WrongNamesAreRefused) {
  EXPECT_THAT(
      [] {
        return MeshShape({2, 4}, {"dp"});
      },
      throws_invalid_argument(
          "MeshShape: 1 name(s) given for 2 dim(s) of sizes [2, 4]; mesh_shape and "
          "mesh_dim_names should have same length: pass one name per dim or none"));
  for (const std::string name : {"", "x=2,y", "a b", "2d"}) {
    EXPECT_THAT(
        [&] {
          return MeshShape({2, 4}, {"dp", name});
        },
        throws_invalid_argument("MeshShape: name \"" + name + "\" given among [dp, " + name +
                                "]; names are letters, digits and underscores and do not start "
                                "with a digit: name every dim so, or none"));
  }
  EXPECT_THAT(
      [] {
        return MeshShape({2, 4}, {"tp", "tp"});
      },
      throws_invalid_argument(
          "MeshShape: name \"tp\" given twice; Each mesh_dim_name must be unique"));
}

TEST(MeshShapeTest, WrongSizesAreRefused) {
  EXPECT_THAT(
      [] {
        return MeshShape({2, 0});
      },
      throws_invalid_argument(
          "MeshShape: sizes [2, 0] given; every mesh dim must have at least 1 rank"));
  EXPECT_THAT([] { return MeshShape({-2}); },
              throws_invalid_argument(
                  "MeshShape: sizes [-2] given; every mesh dim must have at least 1 rank"));
  constexpr std::int64_t kBig = std::int64_t{1} << 32;
  EXPECT_THAT(
      [] {
        return MeshShape({kBig, kBig});
      },
      throws_invalid_argument("MeshShape: sizes [4294967296, 4294967296] given; the number "
                              "of ranks does not fit 64 bits"));
}

TEST(MeshShapeTest, WrongRanksAreRefused) {
  EXPECT_THAT(
      [] {
        return MeshShape({2, 2}, {}, {0, 1, 2});
      },
      throws_invalid_argument("MeshShape: 3 rank(s) given for sizes [2, 2], which need 4; "
                              "pass one rank per position, in row-major order, or none"));
  EXPECT_THAT(
      [] {
        return MeshShape({2}, {}, {0, -1});
      },
      throws_invalid_argument("MeshShape: rank -1 given; ranks are numbered from 0"));
  EXPECT_THAT(
      [] {
        return MeshShape({3}, {}, {4, 2, 4});
      },
      throws_invalid_argument("MeshShape: rank 4 given twice; every rank has one place in a mesh"));
}

TEST(MeshShapeTest, DimensionsOutsideTheMeshAreRefused) {
  const MeshShape mesh({2, 4}, {"dp", "tp"});
  for (const std::int64_t dim : {-1, 2}) {
    const std::string rest =
        concat(": mesh dim ", dim, " given; [dp=2, tp=4] has 2 dim(s), numbered from 0");
    EXPECT_THAT([&] { return mesh.size(dim); }, throws_invalid_argument("MeshShape::size" + rest));
    EXPECT_THAT([&] { return mesh.stride(dim); },
                throws_invalid_argument("MeshShape::stride" + rest));
  }
}

TEST(MeshShapeTest, UnknownNamesAreRefusedWithTheNamesThatExist) {
  EXPECT_THAT(
      [] {
        return MeshShape({2, 4}, {"dp", "tp"}).dim_named("pp");
      },
      throws_invalid_argument("MeshShape::dim_named: mesh dim \"pp\" does not exist in "
                              "[dp=2, tp=4]; use one of its names"));
  EXPECT_THAT(
      [] {
        return MeshShape({2, 4}).dim_named("dp");
      },
      throws_invalid_argument("MeshShape::dim_named: mesh dim \"dp\" does not exist in "
                              "[2, 4]; this mesh has no names: give them when it is made"));
}

TEST(MeshShapeTest, PositionsOutsideTheMeshAreRefused) {
  const MeshShape mesh({2, 4}, {"dp", "tp"}, {9, 8, 7, 6, 5, 4, 3, 2});
  const std::string shown = "[dp=2, tp=4]@{9,8,7,6,5,4,3,2}";
  for (const std::int64_t position : {-1, 8}) {
    const std::string rest =
        concat(": position ", position, " given; ", shown, " has positions 0 to 7");
    EXPECT_THAT([&] { return mesh.rank_at(position); },
                throws_invalid_argument("MeshShape::rank_at" + rest));
    EXPECT_THAT([&] { return mesh.coordinate_at(position); },
                throws_invalid_argument("MeshShape::coordinate_at" + rest));
  }
}

TEST(MeshShapeTest, CoordinatesOutsideTheMeshAreRefused) {
  const MeshShape named({2, 4}, {"dp", "tp"});
  EXPECT_THAT([&] { return named.position_at({1}); },
              throws_invalid_argument("MeshShape::position_at: coordinate (1) given; [dp=2, tp=4] "
                                      "needs 2 indices"));
  EXPECT_THAT(
      [&] {
        return named.rank_at({0, 4});
      },
      throws_invalid_argument("MeshShape::position_at: coordinate (0, 4) given; "
                              "[dp=2, tp=4] has indices 0 to 3 in mesh dim tp"));
  EXPECT_THAT(
      [] {
        return MeshShape({2, 4}).position_at({-1, 0});
      },
      throws_invalid_argument("MeshShape::position_at: coordinate (-1, 0) given; [2, 4] "
                              "has indices 0 to 1 in mesh dim 0"));
}

TEST(MeshShapeTest, MeshesOfManyRanksAreCheap) {
  const MeshShape mesh({1 << 20, 1 << 20});
  EXPECT_EQ(mesh.num_ranks(), std::int64_t{1} << 40);
  EXPECT_EQ(mesh.rank_at({3, 5}), (3 << 20) + 5);
  EXPECT_EQ(mesh.coordinate_of((3 << 20) + 5), (Coordinate{3, 5}));
}

}  // namespace
}  // namespace tessera
