#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

#include "comm/process/deadlock_cases.h"
#include "comm/process/gloo_ranks.h"
#include "comm/process/sample_cases.h"
#include "comm/process/untouched_cases.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/redistribute_local.h"

// The public functions on gloo.

namespace tessera::test {
namespace {

struct ManyWorlds {
  /// While some connect their groups, which is mostly waiting, others compute.
  std::size_t at_a_time = 6;
  WorldOptions world = patient_options();
};

/// Runs all cases, of which every world takes a number `per_world`; `fn` gets the first of them.
void run_gloo_worlds(std::int64_t size, std::size_t cases, std::size_t per_world,
                     const std::function<void(World&, std::size_t)>& fn,
                     const ManyWorlds& options = {}) {
  std::size_t first = 0;
  while (first < cases && !testing::Test::HasFailure()) {
    std::vector<std::unique_ptr<GlooJob>> jobs;
    for (; first < cases && jobs.size() < options.at_a_time; first += per_world) {
      jobs.push_back(std::make_unique<GlooJob>(
          size, [&fn, first](World& world) { fn(world, first); }, options.world, Exit::at_once));
    }
    for (auto& job : jobs) job->expect_success();
  }
}

TEST(GlooCallsTest, EveryMismatchIsFoundOnAllRanksBeforeDataMoves) {
  const auto groups = all_groups_of(4, 4);
  const std::size_t cases = all_mismatches().size() * kMismatchSeeds;
  run_gloo_worlds(4, cases, groups.size(), [&](World& world, std::size_t first) {
    check_mismatches(world.rank(), groups, first);
  });
}

TEST(GlooCallsTest, RanksThatWaitForEachOtherAreToldLongBeforeTheTimeLimit) {
  const auto groups = all_group_pairs_of(4);
  const std::size_t cases = all_deadlocks().size() * kMismatchSeeds;
  // They wait for a while before they become suspicious, hence more at a time.
  run_gloo_worlds(4, cases, groups.size(),
                  [&](World&, std::size_t first) { check_deadlocks(groups, first); },
                  {.at_a_time = 16});
}

TEST(GlooCallsTest, NothingIsWrittenBeforeTheMembersAgree) { run_gloo(4, check_outputs_untouched); }

TEST(GlooCallsTest, TwoThreadsOfARankCannotCommunicateAtTheSameTime) {
  run_gloo(3, check_two_threads);
}

TEST(GlooCallsTest, SlowRanksAreNotTakenForADeadlock) {
  run_gloo_worlds(4, 3, 1,
                  [](World& world, std::size_t number) { check_slow_ranks(world, number); },
                  {.at_a_time = 3, .world = {.timeout = kSlowLimit}});
}

TEST(GlooCallsTest, RedistributionsThatDifferAreFoundOnAllRanks) {
  run_gloo(3, [](World& world) {
    const MeshShape mesh({3});
    const Layout rows(mesh, {Shard(0)}, {6, 6});
    const Layout columns(mesh, {Shard(1)}, {6, 6});
    const Layout whole(mesh, {Replicate()}, {6, 6});
    try {
      (void)redistribute_local(at::ones({2, 6}), rows, world.rank() == 1 ? whole : columns);
      ADD_FAILURE() << "the mismatch was not found";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), testing::ContainsRegex("the ranks do not agree: rank 0 calls .*, "
                                                       "rank 1 calls "));
    }
  });
}

TEST(GlooCallsTest, HalvesOfAMeshThatDifferAreFoundOnAllRanks) {
  // Each half agrees among itself in the first step, and meets the other half in the second.
  run_gloo(4, [](World& world) { expect_halves_that_differ_are_found(world); });
}

TEST(GlooCallsTest, AWrongArgumentOfOneRankIsAnErrorOnAll) {
  run_gloo(3, [](World& world) { expect_wrong_argument_is_told(world); });
}

TEST(GlooCallsTest, AskingForTheEngineOfAGroupNeedsNobodyElse) {
  run_gloo(3, [](World& world) {
    if (world.rank() == 0) {
      EXPECT_STREQ(world.group({2, 1, 0}).engine(), "gloo");
    }
    barrier(world.group());
  });
}

TEST(GlooCallsTest, RandomCallsGiveWhatFollowsFromTheInputs) {
  // At the same time, since a rank mostly waits for the others' messages.
  GlooJob jobs[] = {GlooJob(4, check_all_samples), GlooJob(3, check_all_samples),
                    GlooJob(2, check_all_samples)};
  for (auto& job : jobs) job.expect_success();
}

TEST(GlooCallsTest, ChecksCanBeSwitchedOff) {
  const TemporaryFolder folder;
  Processes processes(3, [&](std::int64_t rank) {
    setenv("TESSERA_CHECK", "0", 1);
    detail::Rendezvous rendezvous;
    rendezvous.file = folder.path() + "/store";
    return run_gloo_rank(rank, 3, rendezvous, patient_options(), [](World& world) {
      EXPECT_FALSE(world.options().check);
      check_redistributions(world, 700, 40);
      check_collectives(world, 700, 10);
    });
  });
  for (const auto& result : processes.finish(std::chrono::seconds(60))) {
    EXPECT_EQ(result.status, 0) << result.output;
  }
}

}  // namespace
}  // namespace tessera::test
