// Slicing, flattening and unflattening of meshes.

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "layout/layout_oracle.h"
#include "support/random_layout.h"
#include "tessera/layout/mesh_shape.h"

namespace tessera {
namespace {

using test::throws_invalid_argument;
using ::testing::ElementsAre;

using Dims = std::vector<std::int64_t>;

const MeshShape& mesh_2x3() {
  static const MeshShape mesh({2, 3}, {"dp", "tp"});
  return mesh;
}

TEST(MeshSliceTest, ASlicePassesThroughTheGivenRank) {
  const MeshShape mesh({2, 4}, {"dp", "tp"});
  EXPECT_EQ(mesh.slice({"tp"}, 5), MeshShape({4}, {"tp"}, {4, 5, 6, 7}));
  EXPECT_EQ(mesh.slice({"tp"}, 0), MeshShape({4}, {"tp"}));
  EXPECT_EQ(mesh.slice({"dp"}, 6), MeshShape({2}, {"dp"}, {2, 6}));
}

TEST(MeshSliceTest, DimensionsComeInTheOrderGiven) {
  EXPECT_EQ(mesh_2x3().slice({"dp", "tp"}, 4), mesh_2x3());
  EXPECT_EQ(mesh_2x3().slice({"tp", "dp"}, 4), MeshShape({3, 2}, {"tp", "dp"}, {0, 3, 1, 4, 2, 5}));
}

TEST(MeshSliceTest, NoDimensionsLeaveTheRankAlone) {
  const MeshShape alone = mesh_2x3().slice({}, 4);
  EXPECT_EQ(alone.ndim(), 0);
  EXPECT_THAT(alone.ranks(), ElementsAre(4));
}

TEST(MeshSliceTest, RankMapsAreKept) {
  const MeshShape mesh({2, 2}, {"dp", "tp"}, {7, 0, 2, 5});
  EXPECT_EQ(mesh.slice({"dp"}, 5), MeshShape({2}, {"dp"}, {0, 5}));
  EXPECT_EQ(mesh.slice({"tp"}, 2), MeshShape({2}, {"tp"}, {2, 5}));
}

TEST(MeshSliceTest, UnnamedMeshesAreSlicedByIndex) {
  const MeshShape mesh({2, 3});
  EXPECT_EQ(mesh.slice_dims(Dims{0}, 4), MeshShape({2}, {}, {1, 4}));
  EXPECT_EQ(mesh_2x3().slice_dims(Dims{1}, 4), mesh_2x3().slice({"tp"}, 4));
}

TEST(MeshSliceTest, SlicesAgreeWithTheMeshAtEveryCoordinate) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    test::Random random(seed);
    const MeshShape mesh = test::random_mesh(random, {.rank_maps = true});
    Dims dims = test::counted_to(mesh.ndim());
    random.shuffle(dims);
    dims.resize(static_cast<std::size_t>(random.between(0, mesh.ndim())));
    const std::int64_t rank = random.pick(mesh.ranks());
    const MeshShape slice = mesh.slice_dims(dims, rank);
    ASSERT_TRUE(slice.contains(rank)) << slice << " of " << mesh;
    for (const auto& coordinate : test::all_coordinates(slice.sizes())) {
      Coordinate whole = mesh.coordinate_of(rank).value();
      for (std::size_t i = 0; i < dims.size(); ++i) {
        whole[static_cast<std::size_t>(dims[i])] = coordinate[i];
      }
      ASSERT_EQ(slice.rank_at(coordinate), mesh.rank_at(whole)) << slice << " of " << mesh;
    }
  }
}

TEST(MeshSliceTest, WrongSlicesAreRefused) {
  EXPECT_THAT([] { return mesh_2x3().slice({"tp"}, 6); },
              throws_invalid_argument("MeshShape::slice: rank 6 is not in [dp=2, tp=3]; a slice "
                                      "passes through one of the mesh's own ranks"));
  EXPECT_THAT(
      [] {
        return mesh_2x3().slice({"tp", "tp"}, 0);
      },
      throws_invalid_argument("MeshShape::slice: mesh dim tp given twice; name every dim once"));
  EXPECT_THAT([] { return mesh_2x3().slice({"pp"}, 0); },
              throws_invalid_argument("MeshShape::dim_named: mesh dim \"pp\" does not exist in "
                                      "[dp=2, tp=3]; use one of its names"));
  EXPECT_THAT([] { return MeshShape({2}).slice({"tp"}, 0); },
              throws_invalid_argument("MeshShape::dim_named: mesh dim \"tp\" does not exist in "
                                      "[2]; this mesh has no names: give them when it is made"));
  EXPECT_THAT([] { return mesh_2x3().slice_dims(Dims(1, 2), 0); },
              throws_invalid_argument("MeshShape::size: mesh dim 2 given; [dp=2, tp=3] has 2 "
                                      "dim(s), numbered from 0"));
}

TEST(MeshFlattenTest, AllRanksBecomeOneDimension) {
  EXPECT_EQ(mesh_2x3().flatten("all"), MeshShape({6}, {"all"}));
  EXPECT_EQ(mesh_2x3().flatten(), MeshShape({6}));
  EXPECT_EQ(MeshShape({2, 2}, {}, {7, 0, 2, 5}).flatten("x"), MeshShape({4}, {"x"}, {7, 0, 2, 5}));
  EXPECT_EQ(MeshShape(Dims{}).flatten("x"), MeshShape({1}, {"x"}));
}

TEST(MeshFlattenTest, ASliceCanBeFlattened) {
  const MeshShape mesh({2, 2, 2}, {"dp", "cp", "tp"});
  EXPECT_EQ(mesh.slice({"dp", "cp"}, 1).flatten("dp_cp"), MeshShape({4}, {"dp_cp"}, {1, 3, 5, 7}));
}

TEST(MeshUnflattenTest, OneDimensionBecomesSeveral) {
  const MeshShape mesh({2, 6}, {"dp", "tp"});
  EXPECT_EQ(mesh.unflatten(1, {2, 3}, {"cp", "tp"}), MeshShape({2, 2, 3}, {"dp", "cp", "tp"}));
  EXPECT_EQ(mesh.unflatten(0, {1, 2}, {"pp", "dp"}), MeshShape({1, 2, 6}, {"pp", "dp", "tp"}));
  EXPECT_EQ(MeshShape({4}, {}, {7, 0, 2, 5}).unflatten(0, {2, 2}),
            MeshShape({2, 2}, {}, {7, 0, 2, 5}));
}

TEST(MeshUnflattenTest, ADimensionOfOneRankCanBeRemoved) {
  EXPECT_EQ(MeshShape({2, 1}, {"dp", "tp"}).unflatten(1, {}, {}), MeshShape({2}, {"dp"}));
}

TEST(MeshUnflattenTest, UnflattenUndoesFlatten) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    test::Random random(seed);
    const MeshShape mesh = test::random_mesh(random, {.rank_maps = true});
    const std::string name = mesh.names().empty() ? "" : "all";
    EXPECT_EQ(mesh.flatten(name).unflatten(0, mesh.sizes(), mesh.names()), mesh) << mesh;
  }
}

TEST(MeshUnflattenTest, WrongArgumentsAreRefused) {
  EXPECT_THAT(
      [] {
        return mesh_2x3().unflatten(1, {2, 2}, {"a", "b"});
      },
      throws_invalid_argument("MeshShape::unflatten: sizes [2, 2] given for mesh dim tp of "
                              "[dp=2, tp=3]; their product must be 3"));
  EXPECT_THAT(
      [] {
        return mesh_2x3().unflatten(1, {3, 1});
      },
      throws_invalid_argument("MeshShape::unflatten: 0 name(s) given for 2 new dim(s) of "
                              "[dp=2, tp=3]; pass 2: one for each if the mesh has names, "
                              "none otherwise"));
  EXPECT_THAT(
      [] {
        return MeshShape({4}).unflatten(0, {2, 2}, {"a", "b"});
      },
      throws_invalid_argument(
          "MeshShape::unflatten: 2 name(s) given for 2 new dim(s) of [4]; pass 0: one for each if "
          "the mesh has names, none otherwise"));
  EXPECT_THAT(
      [] {
        return mesh_2x3().unflatten(0, {2, 0}, {"a", "b"});
      },
      throws_invalid_argument(
          "MeshShape: sizes [2, 0] given; every mesh dim must have at least 1 rank"));
  EXPECT_THAT(
      [] {
        return mesh_2x3().unflatten(1, {3, 1}, {"dp", "x"});
      },
      throws_invalid_argument(
          "MeshShape: name \"dp\" given twice; Each mesh_dim_name must be unique"));
  EXPECT_THAT([] { return mesh_2x3().unflatten(2, {3}, {"a"}); },
              throws_invalid_argument("MeshShape::size: mesh dim 2 given; [dp=2, tp=3] has 2 "
                                      "dim(s), numbered from 0"));
}

}  // namespace
}  // namespace tessera
