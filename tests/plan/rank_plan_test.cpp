#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spelled_plan.h"
#include "support/random_layout.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Optional;

std::vector<std::int64_t> peers_of(const std::vector<Message>& messages) {
  std::vector<std::int64_t> peers;
  for (const auto& message : messages) peers.push_back(message.peer);
  return peers;
}

TEST(RankPlanTest, NoMessageCrossesASpectator) {
  const Layout from = spelled("dp=2,tp=4", "R,S0", {64, 64});
  const Layout to = spelled("dp=2,tp=4", "R,S1", {64, 64});
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const RankStep own = rank_step(exchange_step(from, to), rank);
    const std::int64_t first = rank / 4 * 4;
    const auto own_group = ElementsAre(first, first + 1, first + 2, first + 3);
    EXPECT_THAT(peers_of(own.sends), own_group);
    EXPECT_THAT(peers_of(own.receives), own_group);
  }
}

TEST(RankPlanTest, AllMessagesStayWithinTheGroupOfTheStep) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const MeshShape mesh = random_mesh(random, {.max_ranks = 24, .rank_maps = true});
    const Shape shape = random_shape(random);
    const PlacementOptions placements{.max_split_factor = 3, .partial_ops = {ReduceOp::sum}};
    const auto plan = plan_redistribute(random_layout_on(random, mesh, shape, placements),
                                        random_layout_on(random, mesh, shape, placements));
    for (const auto& step : plan.steps()) {
      for (const auto rank : mesh.ranks()) {
        const RankStep own = rank_step(step, rank);
        const std::vector<std::int64_t> group =
            step.is_local() ? std::vector{rank} : step_group(step, rank);
        EXPECT_THAT(peers_of(own.sends), Each(::testing::AnyOfArray(group))) << step;
        EXPECT_THAT(peers_of(own.receives), Each(::testing::AnyOfArray(group))) << step;
      }
    }
  }
}

TEST(RankPlanTest, ReplicasShareTheSending) {
  const auto plan = planned("2,4", "R,S0", "S0,R", {64, 64});
  ASSERT_EQ(plan.name(), "direct exchange");
  const std::int64_t unit = plan.from().numel() * 4 / 8;
  EXPECT_LE(plan.summary().most_sent_bytes, 4 * unit);
}

TEST(RankPlanTest, EveryReplicaServesAsManyOfManyReceivers) {
  // Eight copies of the whole tensor feed 64 ranks that each need a piece of it.
  const Layout from(MeshShape({8}), {Replicate()}, {64, 8});
  std::vector<std::int64_t> others(64);
  std::iota(others.begin(), others.end(), std::int64_t{8});
  const Layout to(MeshShape({64}, {}, others), {Shard(0)}, {64, 8});
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(rank_step(exchange_step(from, to), rank).sends.size(), 8U) << "rank " << rank;
  }
}

TEST(RankPlanTest, WhatARankHoldsItTakesFromItself) {
  const Layout from = spelled("2,4", "R,S0", {64, 64});
  const Layout to = spelled("2,4", "S0,R", {64, 64});
  const auto held = [&](std::int64_t rank, std::int64_t row) {
    return from.owned(0, rank).intersect(IndexSet(Extent{row, 1})).size() == 1;
  };
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const RankStep own = rank_step(exchange_step(from, to), rank);
    const IndexSet needed = to.owned(0, rank);
    for (const auto& message : own.receives) {
      const Extent rows = own.box(message, 0).front();
      const std::int64_t first_row = needed.runs().front().begin + rows.begin;
      EXPECT_EQ(message.peer == rank, held(rank, first_row)) << "rank " << rank;
      EXPECT_TRUE(held(message.peer, first_row)) << "rank " << rank;
    }
  }
}

TEST(RankPlanTest, ReplicasReceiveContributionsInTheSameOrder) {
  const std::vector<std::int64_t> ranks = {7, 3, 5, 1, 0, 2};
  const MeshShape mesh({2, 3}, {}, ranks);
  const Layout from(mesh, {Partial(), Partial()}, {5});
  const Layout to(mesh, {Replicate(), Replicate()}, {5});
  for (const auto rank : ranks) {
    const RankStep own = rank_step(exchange_step(from, to), rank);
    // In the order of the contributors' coordinates.
    EXPECT_EQ(peers_of(own.receives), ranks);
    EXPECT_THAT(own.reduce, Optional(ReduceOp::sum));
    EXPECT_EQ(own.divisor, 1);
    for (std::size_t i = 0; i < own.receives.size(); ++i) {
      EXPECT_EQ(own.receives[i].accumulate, i > 0) << "contribution " << i;
    }
  }
}

TEST(RankPlanTest, OnlyTheFirstContributionOfEachRegionDoesNotAccumulate) {
  const Layout from = spelled("2,2,3", "P(max),S0,P(max)", {6});
  const Layout to = spelled("2,2,3", "R,R,R", {6});
  const RankStep own = rank_step(exchange_step(from, to), 4);
  std::map<std::size_t, std::vector<bool>> accumulates;
  for (const auto& message : own.receives) {
    accumulates[message.first_box].push_back(message.accumulate);
  }
  ASSERT_EQ(accumulates.size(), 2U);
  for (const auto& [box, flags] : accumulates) {
    EXPECT_THAT(flags, ElementsAre(false, true, true, true, true, true));
  }
}

TEST(RankPlanTest, TheDivisorCountsTheAveragedContributionsOnly) {
  const auto divisor = [](const char* from, const char* to) {
    const Layout source = spelled("2,3", from, {6});
    const Layout destination = spelled("2,3", to, {6});
    return rank_step(exchange_step(source, destination), 0).divisor;
  };
  EXPECT_EQ(divisor("P(avg),P(avg)", "R,R"), 6);
  EXPECT_EQ(divisor("P(avg),P(sum)", "R,R"), 2);
  EXPECT_EQ(divisor("P(sum),P(avg)", "S0,R"), 3);
  EXPECT_EQ(divisor("P(avg),P(avg)", "P(avg),R"), 3);
  EXPECT_EQ(divisor("P(avg),P(sum)", "P(avg),R"), 1);
  EXPECT_EQ(divisor("P(max),R", "R,S0"), 1);
  EXPECT_EQ(divisor("S0,R", "R,P(avg)"), 1);
}

TEST(RankPlanTest, MovedShardsReduceNothing) {
  const RankStep own =
      rank_step(exchange_step(spelled("4", "S0", {8, 8}), spelled("4", "S1", {8, 8})), 2);
  EXPECT_EQ(own.reduce, std::nullopt);
  EXPECT_EQ(own.fill_identity, std::nullopt);
  EXPECT_THAT(own.receives, Each(Field("accumulate", &Message::accumulate, false)));
}

TEST(RankPlanTest, OnlyTheFirstContributorReceivesTheOthersGetTheIdentity) {
  const Layout from = spelled("4", "S0", {8});
  const Layout to(MeshShape({2}, {}, {4, 5}), {Partial(ReduceOp::max)}, {8});
  const RankStep first = rank_step(exchange_step(from, to), 4);
  EXPECT_THAT(peers_of(first.receives), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(first.fill_identity, std::nullopt);
  const RankStep second = rank_step(exchange_step(from, to), 5);
  EXPECT_THAT(second.receives, IsEmpty());
  EXPECT_THAT(second.fill_identity, Optional(ReduceOp::max));
}

TEST(RankPlanTest, ARankOutsideBothMeshesDoesNothing) {
  const auto plan = planned("4", "S0", "S1", {8, 8});
  for (const std::int64_t rank : {-1, 4, 1'000'000}) {
    const auto own = plan.for_rank(rank);
    ASSERT_EQ(own->steps.size(), 1U);
    EXPECT_THAT(own->steps.front().sends, IsEmpty());
    EXPECT_THAT(own->steps.front().receives, IsEmpty());
    EXPECT_THAT(own->steps.front().in_shape, IsEmpty());
    EXPECT_THAT(own->steps.front().out_shape, IsEmpty());
    EXPECT_EQ(own->traffic, Traffic{});
    EXPECT_EQ(own->bound_bytes, 0);
    EXPECT_EQ(own->peak_bytes, 0);
  }
}

TEST(RankPlanTest, APartIsComputedOnceAndKept) {
  const auto plan = planned("4", "S0", "S1", {8, 8});
  EXPECT_EQ(plan.for_rank(2), plan.for_rank(2));
}

TEST(RankPlanTest, CollectivesThatEnginesHaveCarryOnlyTheirShapes) {
  const auto plan = planned("4", "S0", "R", {10, 3});
  ASSERT_EQ(plan.steps().front().kind, StepKind::all_gather);
  const RankStep own = plan.for_rank(3)->steps.front();
  EXPECT_THAT(own.in_shape, ElementsAre(1, 3));
  EXPECT_THAT(own.out_shape, ElementsAre(10, 3));
  EXPECT_THAT(own.receives, IsEmpty());
}

TEST(RankPlanTest, CollectivesAreSpelledOutAsMessagesWhenAsked) {
  const auto plan = planned("4", "S0", "R", {10, 3});
  const auto own = plan.messages(0, 3);
  EXPECT_THAT(peers_of(own->receives), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(peers_of(own->sends), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(own, plan.messages(0, 3));
  const auto moved = planned("4", "S0", "S1", {8, 8});
  EXPECT_EQ(moved.messages(0, 2).get(), &moved.for_rank(2)->steps.front());
}

TEST(RankPlanTest, TheTrafficIsThatOfAllSteps) {
  const auto plan = planned("dp=2,tp=2", "P,R", "S0,S1", {64, 64});
  ASSERT_EQ(plan.steps().size(), 2U);
  const auto own = plan.for_rank(1);
  ASSERT_EQ(own->step_traffic.size(), 2U);
  EXPECT_EQ(own->step_traffic[0], Traffic{});
  EXPECT_EQ(own->step_traffic[1], own->traffic);
  // One of two contributions to a quarter of the tensor.
  EXPECT_EQ(own->traffic.received_bytes, 64 * 64 / 4 * 4);
  EXPECT_EQ(own->traffic.sent_bytes, 64 * 64 / 4 * 4);
}

TEST(RankPlanTest, PeakMemoryIsInputOutputAndBuffers) {
  const auto plan = planned("4", "S0", "S1", {8, 8});
  const auto own = plan.for_rank(1);
  EXPECT_EQ(own->staging_bytes, (12 + 12) * 4);
  EXPECT_EQ(own->peak_bytes, (16 + 16 + 12 + 12) * 4);
}

TEST(RankPlanTest, TheInputStaysAliveBesideALaterStep) {
  const auto plan = planned("dp=2,tp=2", "P,R", "S0,S1", {64, 64});
  // The slice makes a half of the input, which is reduced to a quarter.
  EXPECT_EQ(plan.for_rank(0)->peak_bytes, (64 * 64 + 64 * 32 + 64 * 16) * 4);
}

TEST(RankPlanTest, TheBudgetHoldsWhereALaterRankHoldsMoreThanTheFirst) {
  // Of 1001 and 1000 elements in 1000 pieces, four chunks take 501 and 1000 at the most.
  const Layout from = spelled("2,4", "S0,SS(0,1000)", {2001});
  ASSERT_LT(from.local_numel(0), from.local_numel(4));
  const Layout to(MeshShape({2, 4}, {}, {8, 9, 10, 11, 12, 13, 14, 15}), {Shard(0), Shard(0)},
                  {2001});
  for (const std::int64_t budget : {100, 400, 760}) {
    const auto plan = plan_redistribute(from, to, {.element_size = 1, .staging_budget = budget});
    EXPECT_LE(plan.summary().most_staging_bytes, budget);
  }
}

TEST(PlanSummaryTest, TheAverageIsNeverBelowItsBound) {
  std::vector<std::int64_t> others(100);
  std::iota(others.begin(), others.end(), std::int64_t{100});
  const Layout from(MeshShape({100}), {Partial()}, {1000});
  const Layout to(MeshShape({100}, {}, others), {Shard(0)}, {1000});
  const PlanSummary ranks = plan_redistribute(from, to).summary();
  EXPECT_GE(ranks.mean_received_bytes, ranks.mean_bound_bytes);
}

TEST(PlanSummaryTest, AveragesAreRoundedInBytesNotInElements) {
  // Six elements of four bytes for four ranks.
  const PlanSummary ranks = planned("2,2", "S0,S0", "R,S0", {4}).summary();
  ASSERT_FALSE(ranks.above_bound);
  EXPECT_EQ(ranks.mean_received_bytes, 6);
  EXPECT_EQ(ranks.mean_bound_bytes, 6);
}

TEST(PlanSummaryTest, OfManyRanksAFixedSampleIsLookedAt) {
  const PlanSummary few = planned("64", "S0", "S1", {64, 64}).summary();
  EXPECT_TRUE(few.complete);
  EXPECT_EQ(few.ranks.size(), 64U);
  const auto plan = planned("65", "S0", "S1", {65, 65});
  const PlanSummary many = plan.summary();
  EXPECT_FALSE(many.complete);
  EXPECT_LT(many.ranks.size(), 65U);
  EXPECT_EQ(many.parts.size(), many.ranks.size());
  EXPECT_EQ(many.ranks, plan.summary().ranks);
  EXPECT_THAT(many.ranks, ::testing::IsSupersetOf({0, 64}));
}

TEST(PlanSummaryTest, NoRankIsLookedAtTwice) {
  for (const char* mesh : {"65", "69", "72", "96", "136", "16384"}) {
    std::vector<std::int64_t> ranks = planned(mesh, "S0", "R", {1 << 14}).summary().ranks;
    std::sort(ranks.begin(), ranks.end());
    EXPECT_EQ(std::adjacent_find(ranks.begin(), ranks.end()), ranks.end()) << mesh;
  }
}

}  // namespace
}  // namespace tessera::test
