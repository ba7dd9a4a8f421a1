#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

#include "comm/process/gloo_ranks.h"
#include "comm/process/mismatch_cases.h"
#include "comm/process/sample_cases.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/redistribute_local.h"

// The public functions on gloo.

namespace tessera::test {
namespace {

TEST(GlooCallsTest, EveryMismatchIsFoundOnAllRanksBeforeDataMoves) {
  const auto groups = all_groups_of(4, 4);
  const std::size_t cases = all_mismatches().size() * kMismatchSeeds;
  for (std::size_t first = 0; first < cases; first += groups.size()) {
    run_gloo(4, [&](World& world) { check_mismatches(world.rank(), groups, first); });
    if (HasFailure()) break;
  }
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
  for (const std::int64_t size : {2, 4}) {
    SCOPED_TRACE(size);
    run_gloo(size, [&](World& world) {
      const auto first = static_cast<std::uint64_t>(100 * size);
      check_redistributions(world, first, 150);
      check_collectives(world, first, 25);
      check_gradients_and_traffic(world);
    });
  }
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
