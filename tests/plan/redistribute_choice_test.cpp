#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/cache_capacity.h"
#include "plan/spelled_plan.h"
#include "support/random_layout.h"
#include "support/simulator.h"
#include "tessera/base/error.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::vector<std::string> chosen_steps(const char* mesh, const char* from, const char* to,
                                      const Shape& shape = {64, 64}) {
  return printed(planned(mesh, from, to, shape).steps());
}

TEST(RedistributeChoiceTest, GatheringAlongSeveralMeshDimsIsOneStep) {
  EXPECT_THAT(chosen_steps("dp=2,tp=2", "S0,S0", "R,R"),
              ElementsAre("all_gather(dp, tp, dim 0): [S(0),S(0)] -> [R,R]"));
}

TEST(RedistributeChoiceTest, ReducingAlongSeveralMeshDimsIsOneStep) {
  EXPECT_THAT(chosen_steps("dp=2,tp=2", "P,P", "R,R", {1024, 1024}),
              ElementsAre("all_reduce(dp, tp): [P(sum),P(sum)] -> [R,R]"));
}

TEST(RedistributeChoiceTest, AnotherShardDimIsAnAllToAll) {
  EXPECT_THAT(chosen_steps("tp=4", "S0", "S1"),
              ElementsAre("all_to_all(tp, dim 0): [S(0)] -> [S(1)]"));
}

TEST(RedistributeChoiceTest, ContributionsAreSlicedBeforeTheyAreReduced) {
  EXPECT_THAT(chosen_steps("dp=2,tp=2", "P,R", "S0,S1"),
              ElementsAre("slice: [P(sum),R] -> [P(sum),S(1)]",
                          "reduce_scatter(dp, dim 0): [P(sum),S(1)] -> [S(0),S(1)]"));
}

TEST(RedistributeChoiceTest, OneRankFeedsFourCopiesByStripes) {
  const Layout from(MeshShape({1}), {Replicate()}, {64, 64});
  const Layout to(MeshShape({4}, {"tp"}, {1, 2, 3, 4}), {Replicate()}, {64, 64});
  const auto plan = plan_redistribute(from, to);
  EXPECT_EQ(plan.name(), "stripes and all_gather");
  EXPECT_THAT(printed(plan.steps()), ElementsAre("exchange: [R] -> [S(0)] from [1] to [tp=4]@1..4",
                                                 "all_gather(tp, dim 0): [S(0)] -> [R]"));
  EXPECT_EQ(plan.for_rank(0)->traffic.sent_bytes, from.numel() * 4);
}

TEST(RedistributeChoiceTest, ContributionsAreMadeWithoutTraffic) {
  for (const char* op : {"P(sum)", "P(avg)", "P(min)", "P(max)", "P(product)", "P(band)"}) {
    const auto plan = planned("4", "R", op, {64, 64});
    EXPECT_TRUE(plan.is_local()) << plan.explain();
  }
  EXPECT_THAT(chosen_steps("tp=4", "R", "P(max)"), ElementsAre("fill: [R] -> [P(max)]"));
  EXPECT_THAT(chosen_steps("tp=4", "S1", "P(sum)"), ElementsAre("fill: [S(1)] -> [P(sum)]"));
  EXPECT_THAT(chosen_steps("dp=2,tp=2", "S0,R", "P,P"),
              ElementsAre("fill: [S(0),R] -> [P(sum),P(sum)]"));
}

TEST(RedistributeChoiceTest, AStepThatWritesTheIdentityIsNoSlice) {
  // Nothing moves in either: the one element is at rank 0, and the meshes have the same ranks.
  const std::vector<RedistributePlan> plans = {
      planned("4", "S0", "P(sum)", {1}),
      plan_redistribute(spelled("2", "R", {4}), spelled("2,1", "P(sum),R", {4}))};
  for (const auto& plan : plans) {
    ASSERT_EQ(plan.steps().size(), 1U);
    ASSERT_TRUE(plan.for_rank(1)->steps.front().fill_identity.has_value());
    EXPECT_NE(plan.steps().front().kind, StepKind::slice) << plan.explain();
  }
}

TEST(RedistributeChoiceTest, ContributionsOfOneRankMeshDimsDoNotChooseTheIdentity) {
  const auto plan = planned("2,1", "S0,R", "P(sum),P(max)", {4});
  EXPECT_EQ(plan.for_rank(0)->steps.front().fill_identity, ReduceOp::sum);
}

TEST(RedistributeChoiceTest, StridedShardsAndOtherMeshesGoDirectly) {
  EXPECT_THAT(chosen_steps("tp=4", "SS(0,2)", "S0"),
              ElementsAre("exchange(tp): [SS(0,2)] -> [S(0)]"));
  const auto plan =
      plan_redistribute(spelled("4", "S0", {64, 64}), spelled("2,3", "S1,S0", {64, 64}));
  EXPECT_THAT(printed(plan.steps()),
              ElementsAre("exchange: [S(0)] -> [S(1),S(0)] from [4] to [2, 3]"));
}

TEST(RedistributeChoiceTest, AnExchangeTalksAlongNoMoreMeshDimsThanItMust) {
  EXPECT_THAT(chosen_steps("dp=2,tp=4", "R,SS(0,2)", "R,S0"),
              ElementsAre("exchange(tp): [R,SS(0,2)] -> [R,S(0)]"));
  EXPECT_THAT(chosen_steps("dp=2,tp=4", "S0,SS(0,2)", "S0,S0"),
              ElementsAre("exchange(tp): [S(0),SS(0,2)] -> [S(0),S(0)]"));
}

TEST(RedistributeChoiceTest, AKeptStridedShardLeavesCollectivesPossible) {
  EXPECT_THAT(chosen_steps("dp=2,tp=2", "SS(0,2),S0", "SS(0,2),R"),
              ElementsAre("all_gather(tp, dim 0): [SS(0,2),S(0)] -> [SS(0,2),R]"));
}

TEST(RedistributeChoiceTest, ManyMessagesOrManyBytesDecide) {
  const Shape small = {8, 8};
  const PlanOptions messages_only = {.cost = {0, 1, 0, 0}};
  const PlanOptions bytes_only = {.cost = {0, 0, 1, 0}};
  const auto few_messages = planned("4,2", "S0,S0", "S1,S1", small, messages_only);
  const auto few_bytes = planned("4,2", "S0,S0", "S1,S1", small, bytes_only);
  EXPECT_EQ(few_messages.name(), "collectives");
  EXPECT_TRUE(few_messages.summary().above_bound);
  EXPECT_EQ(few_bytes.name(), "direct exchange");
  EXPECT_FALSE(few_bytes.summary().above_bound);
}

TEST(RedistributeChoiceTest, TiesGoToTheCollective) {
  const PlanOptions free = {.cost = {0, 0, 0, 0}};
  EXPECT_EQ(planned("4", "S0", "S1", {8, 8}, free).name(), "collectives");
}

TEST(RedistributeChoiceTest, TheRankThatLacksMostSetsThePrice) {
  // 5 over 4 is 2, 2, 1, 0: the last rank receives everything.
  const auto plan = planned("4", "S0", "R", {5});
  ASSERT_EQ(plan.steps().front().kind, StepKind::all_gather);
  EXPECT_EQ(plan.steps().front().worst.received_bytes, 5 * 4);
  EXPECT_EQ(plan.candidates().front().received_bytes, plan.summary().most_received_bytes);
}

TEST(RedistributeChoiceTest, CostsBeyondAllMeasureStillCompare) {
  // Two messages are half as dear as anything can be, each; three exceed it.
  const auto plan = planned("dp=2,tp=2", "S0,S1", "R,R", {8, 8}, {.cost = {0, kMost / 2, 0, 0}});
  EXPECT_THAT(printed(plan.steps()), ElementsAre("all_gather(dp, dim 0): [S(0),S(1)] -> [R,S(1)]",
                                                 "all_gather(tp, dim 1): [R,S(1)] -> [R,R]"));
  EXPECT_EQ(plan.cost_ps(), kMost / 2 * 2);
}

TEST(RedistributeChoiceTest, TheChosenOneIsTheFirstOfTheSortedCandidates) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const MeshShape mesh(
        std::vector<std::int64_t>(static_cast<std::size_t>(random.between(1, 6)), 2));
    const PlacementOptions placements{.max_split_factor = 0, .partial_ops = {ReduceOp::sum}};
    const Layout from = random_layout_on(random, mesh, {25, 45, 22, 56}, placements);
    const Layout to = random_layout_on(random, mesh, {25, 45, 22, 56}, placements);
    const auto plan = plan_redistribute(from, to);
    const auto candidates = plan.candidates();
    SCOPED_TRACE(concat("seed ", seed, ": ", plan.explain()));
    EXPECT_EQ(candidates.front().name, plan.name());
    EXPECT_EQ(candidates.front().cost_ps, plan.cost_ps());
    EXPECT_EQ(printed(candidates.front().steps), printed(plan.steps()));
    EXPECT_TRUE(std::is_sorted(candidates.begin(), candidates.end(),
                               [](const auto& a, const auto& b) { return a.cost_ps < b.cost_ps; }));
  }
}

TEST(RedistributeChoiceTest, TheChosenOneIsListedEvenWhereTheSearchIsCutShort) {
  // Choosing, the search passes over all that is dearer than the exchange; listing, it does not.
  const MeshShape mesh({2, 2, 2, 2, 2});
  const Layout from(mesh, parse_placements("P,R,P,S0,S0"), {25, 45, 22, 56}, {0, 1, 2, 4, 3});
  const Layout to(mesh, parse_placements("S0,R,S3,S1,S1"), {25, 45, 22, 56}, {0, 1, 2, 4, 3});
  const auto plan = plan_redistribute(from, to, {.cost = {964'810, 304'960, 211, 197}});
  EXPECT_EQ(plan.candidates().front().name, plan.name());
  EXPECT_EQ(plan.candidates().front().cost_ps, plan.cost_ps());
}

TEST(RedistributeChoiceTest, NoTwoCandidatesHaveTheSameSteps) {
  // The copies of an average are no stripes that could be gathered.
  const auto candidates = planned("4", "S0", "P(avg)", {64, 64}).candidates();
  std::vector<std::vector<std::string>> seen;
  for (const auto& candidate : candidates) {
    EXPECT_THAT(seen, ::testing::Not(::testing::Contains(printed(candidate.steps))))
        << candidate.name;
    seen.push_back(printed(candidate.steps));
  }
}

TEST(RedistributionBytesTest, AreTheBoundWithoutContributions) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const MeshShape mesh = random_mesh(random);
    const Shape shape = random_shape(random);
    const Layout from = random_layout_on(random, mesh, shape);
    const Layout to =
        random_layout_on(random, random.one_in(2) ? random_mesh(random) : mesh, shape);
    EXPECT_EQ(redistribution_bytes(from, to, 4),
              plan_redistribute(from, to).summary().most_bound_bytes)
        << from << " to " << to;
  }
}

TEST(RedistributionBytesTest, CountWhatReducingTakes) {
  const auto bytes = [](const char* from, const char* to) {
    return redistribution_bytes(spelled("4", from, {64}), spelled("4", to, {64}), 4);
  };
  constexpr std::int64_t kBlock = 64 * 4;
  EXPECT_EQ(bytes("P", "S0"), kBlock * 3 / 4);
  EXPECT_EQ(bytes("P", "R"), 2 * kBlock * 3 / 4);
}

TEST(RedistributionBytesTest, ContributionsAreMadeForNothing) {
  const auto bytes = [](const char* from, const char* to) {
    return redistribution_bytes(spelled("2,2", from, {64}), spelled("2,2", to, {64}), 4);
  };
  EXPECT_EQ(bytes("R,R", "P,R"), 0);
  EXPECT_EQ(bytes("S0,R", "P,R"), 0);
  EXPECT_EQ(bytes("S0,S0", "P,P"), 0);
}

/// Describes the plans of `count` random pairs, from pair `first` on around.
std::vector<std::string> describe_plans(std::uint64_t first, std::uint64_t count) {
  std::vector<std::string> plans(count);
  const std::vector<ReduceOp> ops = {ReduceOp::sum, ReduceOp::avg};
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t seed = (first + i) % count;
    Random random(seed);
    const MeshShape mesh = random_mesh(random, {.max_ranks = 24});
    const MeshShape other = random.one_in(4) ? random_mesh(random) : mesh;
    const Shape shape = random_shape(random);
    const PlacementOptions placements{.max_split_factor = 3, .partial_ops = ops};
    const Layout from = random_layout_on(random, mesh, shape, placements);
    const Layout to = random_layout_on(random, other, shape, placements);
    try {
      const auto plan = plan_redistribute(from, to);
      plans[seed] = concat(plan.name(), ' ', plan.cost_ps());
      for (const auto& step : plan.steps()) plans[seed] += concat('\n', step, ' ', step.cost_ps);
    } catch (const InvalidArgument& error) {
      plans[seed] = error.what();
    }
  }
  return plans;
}

TEST(RedistributeChoiceTest, EightRanksThatPlanAloneChooseAlike) {
  constexpr std::uint64_t kRanks = 8;
  constexpr std::uint64_t kPairs = 500;
  const CacheCapacity no_cache(0);
  std::vector<std::vector<std::string>> plans(kRanks);
  std::vector<std::thread> ranks;
  for (std::uint64_t rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { plans[rank] = describe_plans(rank * 61, kPairs); });
  }
  for (auto& rank : ranks) rank.join();
  for (const auto& others : plans) EXPECT_EQ(others, plans.front());
}

}  // namespace
}  // namespace tessera::test
