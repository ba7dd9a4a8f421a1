#include <csignal>
#include <functional>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/process/gloo_ranks.h"
#include "comm/process/process_groups.h"
#include "comm/process/sample_cases.h"
#include "comm/process/transport_cases.h"
#include "tessera/base/concat.h"
#include "tessera/comm/c10d.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::test {
namespace {

using testing::HasSubstr;

TEST(AdoptTest, AnAdoptedGroupCanDoEverything) {
  expect_success(with_process_groups(3, [](const GroupPtr& all, const std::string&) {
    World world = adopt(all, {}, patient_options());
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.rank(), all->getRank());
    EXPECT_STREQ(world.engine(), "gloo");
    check_moves(world.group());
    check_reductions(world.group());
    check_messages(world.group());
    check_gradients_and_traffic(world);
  }));
}

TEST(AdoptTest, MeshesCanBeMadeOfAdoptedGroups) {
  expect_success(with_process_groups(4, [](const GroupPtr& all, const std::string& file) {
    // Columns {0,2} and {1,3} of a 2 x 2 mesh.
    const int rank = all->getRank();
    const int column = rank % 2;
    const AdoptedGroup dp{make_process_group(file, concat("dp", column), rank / 2, 2),
                          {column, column + 2}};
    const World world = adopt(all, {dp}, patient_options());
    const DeviceMesh mesh = DeviceMesh::from_group(world.group({column, column + 2}), "cpu", "dp");
    EXPECT_EQ(mesh.local_rank("dp"), rank / 2);
    const at::Tensor sum =
        all_reduce(at::full({3}, rank, at::kLong), ReduceOp::sum, mesh.group("dp"));
    EXPECT_TRUE(sum.eq(2 * column + 2).all().item<bool>());
    // It may be adopted again, also while the first world stands.
    const World again = adopt(all, {}, patient_options());
    barrier(again.group());
    barrier(world.group());
    try {
      barrier(again.group({column, column + 2}));
      ADD_FAILURE() << "a group that is not there can be used";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("which has {0,1,2,3}; pass a process group of these ranks"));
    }
  }));
}

TEST(AdoptTest, MismatchesAreFoundAndTheDeadAreNamed) {
  const auto results = with_process_groups(3, [](const GroupPtr& all, const std::string&) {
    const World world = adopt(all, {}, patient_options());
    const auto rank = world.rank();
    try {
      (void)all_reduce(at::full({4 + rank / 2}, 1, at::kFloat), ReduceOp::sum, world.group());
      ADD_FAILURE() << "the mismatch was not found";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0 calls all_reduce(float32[4] sum), rank 2 calls "
                                          "all_reduce(float32[5] sum)"));
    }
    const World again = adopt(all, {}, short_options());
    barrier(again.group());
    if (rank == 1) raise(SIGKILL);
    try {
      barrier(again.group());
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 is gone: process "));
      return;
    }
    ADD_FAILURE() << "nobody missed rank 1";
  });
  EXPECT_EQ(results[0].status, 0) << outputs_of(results);
  EXPECT_EQ(results[1].status, 128 + SIGKILL) << outputs_of(results);
  EXPECT_EQ(results[2].status, 0) << outputs_of(results);
}

TEST(AdoptTest, RanksThatDoNotFitAreRefused) {
  expect_success(with_process_groups(2, [](const GroupPtr& all, const std::string& file) {
    // Nobody may end before everybody is connected.
    all->barrier()->wait();
    const auto refusal = [&](const std::vector<AdoptedGroup>& others) -> std::string {
      try {
        (void)adopt(all, others);
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_THAT(refusal({{all, {0}}}), HasSubstr("adopt: ranks {0} given for a process group of "
                                                 "size 2; give one rank per member"));
    EXPECT_THAT(refusal({{all, {1, 0}}}), HasSubstr("give the ranks in the group's order"));
    EXPECT_THAT(refusal({{GroupPtr(), {0, 1}}}),
                HasSubstr("adopt: no process group given for ranks {0,1}"));
    EXPECT_THAT(refusal({{make_bare_process_group(file, all->getRank(), 2), {0, 1}}}),
                HasSubstr("adopt: a process group without a backend given"));
  }));
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(AdoptTest, WhatIsNoProcessGroupIsRefusedBeforeAnybodyIsAsked) {
  // One rank alone calls: had it asked the other, it would have waited for it.
  expect_success(with_process_groups(2, [](const GroupPtr& all, const std::string& file) {
    all->barrier()->wait();
    if (all->getRank() == 1) return open_signs(file)->wait({"done"}, std::chrono::seconds(90));
    const GroupPtr bare = make_bare_process_group(file, 0, 2);
    EXPECT_EQ(refusal_of([&] { (void)adopt(GroupPtr()); }),
              "adopt: no process group given; pass one that all its members have made");
    EXPECT_EQ(refusal_of([&] { (void)DeviceMesh::from_group(GroupPtr(), "cpu"); }),
              "DeviceMesh::from_group: no process group given; pass one that all its members have "
              "made");
    EXPECT_EQ(
        refusal_of([&] { (void)adopt(bare); }),
        "adopt: a process group without a backend given; set one for the device whose tensors "
        "it shall move");
    EXPECT_EQ(refusal_of([&] { (void)DeviceMesh::from_group(bare, "cpu"); }),
              "DeviceMesh::from_group: a process group without a backend given; set one for the "
              "device whose tensors it shall move");
    EXPECT_THAT(refusal_of([&] { (void)DeviceMesh::from_group(all, "cuda:0"); }),
                HasSubstr("DeviceMesh: device type \"cuda:0\" given"));
    open_signs(file)->set("done", "yes");
  }));
}

TEST(AdoptTest, AMeshIsMadeOfAProcessGroup) {
  expect_success(with_process_groups(3, [](GroupPtr all, const std::string&) {
    const int rank = all->getRank();
    const DeviceMesh mesh = DeviceMesh::from_group(all, "cpu", "dp", patient_options());
    // The mesh needs nobody to keep its world, nor the process group.
    all.reset();
    EXPECT_EQ(mesh.to_string(), "DeviceMesh([dp=3], cpu)");
    EXPECT_EQ(mesh.local_rank("dp"), rank);
    EXPECT_EQ(mesh.world().size(), 3);
    EXPECT_STREQ(mesh.world().engine(), "gloo");
    EXPECT_EQ(mesh.world().options().timeout, patient_options().timeout);
    EXPECT_FALSE(World::is_running());
    const at::Tensor sum = all_reduce(at::full({2}, rank, at::kLong), ReduceOp::sum, mesh["dp"]);
    EXPECT_TRUE(sum.eq(3).all().item<bool>());
    const at::Tensor whole = at::arange(12, at::kFloat).view({6, 2});
    const Layout rows(mesh.shape(), {Shard(0)}, {6, 2});
    const Layout everything(mesh.shape(), {Replicate()}, {6, 2});
    EXPECT_TRUE(redistribute_local(whole.narrow(0, 2 * rank, 2), rows, everything, mesh.world())
                    .equal(whole));
    const at::Tensor spread = distribute_tensor(whole, mesh, {Shard(0)});
    EXPECT_TRUE(full_tensor(spread * 2).equal(whole * 2));
  }));
}

TEST(AdoptTest, MeshesOfOneProcessGroupHaveWorldsOfTheirOwn) {
  expect_success(with_process_groups(4, [](const GroupPtr& all, const std::string&) {
    const auto make = [&] { return DeviceMesh::from_group(all, "cpu", "dp", patient_options()); };
    std::optional<DeviceMesh> first = make();
    const DeviceMesh second = make();
    EXPECT_FALSE(*first == second);
    EXPECT_TRUE(DeviceMesh(second) == second);
    barrier(*first);
    barrier(second);
    const Group group = first->group();
    first.reset();
    EXPECT_THAT(refusal_of([&] { barrier(group); }),
                HasSubstr("is used after its world has ended"));
    barrier(second);
    // Only the group of all ranks is there.
    const DeviceMesh square = second.unflatten(0, {2, 2}, {"rows", "columns"});
    EXPECT_THAT(refusal_of([&] { barrier(square["rows"]); }),
                HasSubstr("pass a process group of these ranks, in this order, to adopt"));
    barrier(square);
  }));
}

}  // namespace
}  // namespace tessera::test
