#include "tessera/comm/device_mesh.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/rank_test.h"
#include "tessera/base/concat.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Ranks = std::vector<std::int64_t>;

TEST(DeviceMeshTest, KnowsCoordinatesSizesAndGroups) {
  run_ranks(4, [](World& world) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const std::int64_t rank = world.rank();
    EXPECT_EQ(mesh.to_string(), "DeviceMesh([dp=2, tp=2], cpu)");
    EXPECT_EQ(mesh.coordinate(), (Coordinate{rank / 2, rank % 2}));
    EXPECT_EQ(mesh.local_rank("dp"), rank / 2);
    EXPECT_EQ(mesh.local_rank(1), rank % 2);
    EXPECT_EQ(mesh.size(), 4);
    EXPECT_EQ(mesh.size("tp"), 2);
    EXPECT_EQ(mesh.group("dp").ranks(), (Ranks{rank % 2, rank % 2 + 2}));
    EXPECT_EQ(mesh.group("tp").ranks(), (Ranks{rank / 2 * 2, rank / 2 * 2 + 1}));
    EXPECT_EQ(mesh.group().ranks(), (Ranks{0, 1, 2, 3}));
    EXPECT_EQ(mesh.all_groups().size(), 2U);
    EXPECT_EQ(mesh.group("tp").name(), "tp");
  });
}

TEST(DeviceMeshTest, SlicesShareGroupsWithTheWhole) {
  run_ranks(8, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2, 2}, {"pp", "dp", "tp"});
    EXPECT_EQ(mesh["tp"].group(), mesh.group("tp"));
    const DeviceMesh two = mesh.slice({"dp", "tp"});
    EXPECT_EQ(two.group("dp"), mesh.group("dp"));
    const Ranks dims = {1, 2};
    EXPECT_EQ(two.group(), mesh.group(dims));
    EXPECT_EQ(mesh.slice({"pp", "dp", "tp"}), mesh);
    EXPECT_EQ(mesh.flatten("all").group(), mesh.group());
  });
}

TEST(DeviceMeshTest, EqualMeshesHaveEqualHashes) {
  run_ranks(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const DeviceMesh again = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    EXPECT_EQ(mesh, again);
    EXPECT_EQ(mesh.hash(), again.hash());
    EXPECT_EQ(std::hash<DeviceMesh>{}(mesh), mesh.hash());
    EXPECT_NE(mesh, init_device_mesh("cpu", {2, 2}, {"dp", "pp"}));
    EXPECT_NE(mesh, init_device_mesh("cpu", {4}, {"dp"}));
    EXPECT_NE(mesh, init_device_mesh("cuda", {2, 2}, {"dp", "tp"}));
  });
}

TEST(DeviceMeshTest, GroupsAreFoundOnce) {
  run_ranks(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Ranks straight = {0, 1};
    const Ranks crossed = {1, 0};
    EXPECT_EQ(mesh.group(straight), mesh.group());
    EXPECT_EQ(mesh.group(crossed), mesh.group(crossed));
    EXPECT_NE(mesh.group(crossed), mesh.group(straight));
    EXPECT_EQ(mesh.group(1), mesh.group("tp"));
    const Ranks twice = {1, 1};
    EXPECT_THROW((void)mesh.group(twice), InvalidArgument);
    EXPECT_THROW((void)mesh.group(2), InvalidArgument);
  });
}

TEST(DeviceMeshTest, FlattenAndUnflattenAreInverse) {
  run_ranks(4, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    EXPECT_EQ(mesh.flatten("all").to_string(), "DeviceMesh([all=4], cpu)");
    EXPECT_EQ(mesh.flatten("all").unflatten(0, {2, 2}, {"dp", "tp"}), mesh);
  });
}

TEST(DeviceMeshTest, RanksOutsideHaveNoCoordinateAndNoGroup) {
  run_ranks(3, [](World& world) {
    const DeviceMesh mesh("cpu", MeshShape({2}, {"tp"}, {2, 0}));
    EXPECT_EQ(mesh.coordinate().has_value(), world.rank() != 1);
    if (world.rank() == 1) {
      EXPECT_THAT([&] { (void)mesh.local_rank(); },
                  ThrowsMessage<InvalidArgument>(HasSubstr("rank 1 is not in DeviceMesh([tp=2]")));
      EXPECT_THROW((void)mesh.group("tp"), InvalidArgument);
    } else {
      EXPECT_EQ(mesh.local_rank(), world.rank() == 2 ? 0 : 1);
    }
  });
}

TEST(DeviceMeshTest, AGroupBecomesAMesh) {
  run_ranks(3, [](World& world) {
    const DeviceMesh mesh = DeviceMesh::from_group(world.group({2, 0, 1}), "cpu", "x");
    EXPECT_EQ(mesh.to_string(), "DeviceMesh([x=3]@{2,0,1}, cpu)");
    EXPECT_EQ(mesh.group(), world.group({2, 0, 1}));
  });
}

TEST(DeviceMeshTest, GroupsAreMadeWhenFirstUsedAndShared) {
  run_ranks(4, [](World& world) {
    // Only some of the members ask, which would hang if that connected them.
    if (world.rank() != 0) return;
    const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const Group tp = mesh.group("tp");
    EXPECT_EQ(tp.state().transport, nullptr);
    for (const auto& same : {mesh["tp"].group(), mesh.group(1), world.group({0, 1}),
                             init_device_mesh("cpu", {2, 2}).group(1)}) {
      EXPECT_EQ(&same.state(), &tp.state());
    }
    EXPECT_EQ(&mesh.group().state(), &world.group().state());
    EXPECT_NE(&mesh.group("dp").state(), &tp.state());
  });
}

TEST(DeviceMeshTest, ThreadsOfARankMayAskForGroupsAtATime) {
  run_ranks(2, [](World& world) {
    std::vector<std::vector<const detail::GroupState*>> found(4);
    std::vector<std::thread> threads;
    for (auto& each : found) {
      threads.emplace_back([&each, world] {
        for (const auto& ranks : {Ranks{0, 1}, Ranks{1, 0}, Ranks{world.rank()}}) {
          each.push_back(&world.group(ranks).state());
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& each : found) EXPECT_EQ(each, found[0]);
  });
}

TEST(DeviceMeshTest, EqualityIsShapeNamesDeviceAndWorld) {
  run_ranks(2, [](World&) {
    const DeviceMesh mesh = init_device_mesh("cpu", {2}, {"tp"});
    EXPECT_EQ(mesh, init_device_mesh("cpu", {2}, {"tp"}));
    EXPECT_FALSE(mesh == init_device_mesh("cpu", {2}, {"dp"}));
    EXPECT_FALSE(mesh == init_device_mesh("cuda", {2}, {"tp"}));
    EXPECT_FALSE(mesh == init_device_mesh("cpu", {2, 1}));
  });
}

TEST(DeviceMeshTest, WrongMeshesAreRefused) {
  run_ranks(2, [](World&) {
    const auto refused = [](const std::string& device, const Ranks& sizes,
                            const std::vector<std::string>& names, const std::string& text) {
      EXPECT_THAT([&] { (void)init_device_mesh(device, sizes, names); },
                  ThrowsMessage<InvalidArgument>(HasSubstr(text)));
    };
    refused("cuda:0", {2}, {}, "Device type with index is not supported");
    refused("", {2}, {}, "pass the type alone");
    refused("cpu", {2, 2}, {}, "Mesh should not be bigger than default world size");
    refused("cpu", {2}, {"a", "b"}, "mesh_shape and mesh_dim_names should have same length");
    refused("cpu", {1, 2}, {"a", "a"}, "Each mesh_dim_name must be unique");
    const DeviceMesh unnamed = init_device_mesh("cpu", {1, 2});
    EXPECT_THAT([&] { (void)unnamed["tp"]; },
                ThrowsMessage<InvalidArgument>(
                    HasSubstr("Cannot slice a DeviceMesh without mesh_dim_names")));
    EXPECT_THAT([&] { (void)unnamed.local_rank(); },
                ThrowsMessage<InvalidArgument>(
                    HasSubstr("`mesh_dim` needs to be specified when device_mesh.ndim > 1")));
    EXPECT_THAT([&] { (void)init_device_mesh("cpu", {2}, {"dp"}).group("tp"); },
                ThrowsMessage<InvalidArgument>(HasSubstr("\"tp\" does not exist in [dp=2]")));
  });
}

}  // namespace
}  // namespace tessera::test
