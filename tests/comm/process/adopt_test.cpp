#include <csignal>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/process/gloo_ranks.h"
#include "comm/process/sample_cases.h"
#include "comm/process/transport_cases.h"
#include "tessera/base/concat.h"
#include "tessera/comm/c10d.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

/// A process group as a program that uses c10d makes it.
GroupPtr make_process_group(const std::string& file, const std::string& name, int rank, int size) {
  const auto store =
      c10::make_intrusive<c10d::PrefixStore>(name, c10::make_intrusive<c10d::FileStore>(file, -1));
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(5000));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setBackend(at::kCPU, c10d::ProcessGroup::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options));
  return group;
}

/// Runs `fn` on processes that have a process group of all of them; returns what they printed.
std::vector<ProcessResult> with_process_groups(
    int size, const std::function<void(const GroupPtr&, const std::string& file)>& fn) {
  const TemporaryFolder folder;
  Processes processes(size, [&](std::int64_t rank) {
    const std::string file = folder.path() + "/store";
    at::set_num_threads(1);
    try {
      fn(make_process_group(file, "all", static_cast<int>(rank), size), file);
    } catch (const std::exception& error) {
      std::cout << "threw: " << error.what() << std::endl;
      return 1;
    }
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  return processes.finish(milliseconds(60'000));
}

void expect_success(const std::vector<ProcessResult>& results) {
  for (const auto& result : results) {
    EXPECT_EQ(result.status, 0) << outputs_of(results);
    EXPECT_FALSE(result.overdue);
  }
}

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
  expect_success(with_process_groups(2, [](const GroupPtr& all, const std::string&) {
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
    EXPECT_THAT(refusal({{GroupPtr(), {0, 1}}}), HasSubstr("adopt: no process group given"));
    try {
      (void)adopt(GroupPtr());
      ADD_FAILURE() << "no process group was adopted";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("adopt: no process group given"));
    }
  }));
}

}  // namespace
}  // namespace tessera::test
