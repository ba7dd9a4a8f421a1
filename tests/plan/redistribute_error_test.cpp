#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "plan/spelled_plan.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {
namespace {

Layout small(const char* placements) { return spelled("dp=2,tp=2", placements, {8, 8}); }

/// Expects that both ways of asking refuse a pair of layouts.
void expect_refused(const Layout& from, const Layout& to, const std::string& text) {
  EXPECT_THAT([&] { return plan_redistribute(from, to); }, throws_invalid_argument(text));
  EXPECT_THAT([&] { return redistribution_bytes(from, to, 4); }, throws_invalid_argument(text));
}

void expect_refused(const PlanOptions& options, const std::string& text) {
  EXPECT_THAT([&] { return plan_redistribute(small("S0,R"), small("R,S0"), options); },
              throws_invalid_argument(text));
}

TEST(RedistributeErrorTest, TheShapesMustBeEqual) {
  expect_refused(small("S0,R"), spelled("dp=2,tp=2", "S0,R", {8, 9}),
                 "redistribute: from [8,8][S(0),R] on [dp=2, tp=2] to [8,9][S(0),R] on "
                 "[dp=2, tp=2] given; both must have the same global shape");
}

TEST(RedistributeErrorTest, ContributionsToOneReductionAreNoneToAnother) {
  expect_refused(small("R,P(sum)"), small("R,P(max)"),
                 "redistribute: mesh dim tp of [dp=2, tp=2] cannot go from P(sum) to P(max): "
                 "contributions to one reduction are none to another; redistribute to R first");
  expect_refused(spelled("2", "P(avg)", {8}), spelled("2", "P(sum)", {8}),
                 "redistribute: mesh dim 0 of [2] cannot go from P(avg) to P(sum): "
                 "contributions to one reduction are none to another; redistribute to R first");
}

TEST(RedistributeErrorTest, ContributionsOfDifferentMeshDimsMayDiffer) {
  EXPECT_NO_THROW((void)plan_redistribute(small("P(sum),R"), small("R,P(max)")));
  EXPECT_NO_THROW((void)planned("2,1", "S0,P(sum)", "S0,P(max)", {8}));
}

TEST(RedistributeErrorTest, AnElementHasAtLeastOneByte) {
  expect_refused({.element_size = 0},
                 "plan_redistribute: element_size 0 given; it is the bytes of one element, at "
                 "least 1");
  EXPECT_THAT([] { return redistribution_bytes(small("S0,R"), small("R,S0"), -4); },
              throws_invalid_argument("redistribution_bytes: element_size -4 given; it is the "
                                      "bytes of one element, at least 1"));
}

TEST(RedistributeErrorTest, TheBudgetMustNotBeNegative) {
  expect_refused({.staging_budget = -1},
                 "plan_redistribute: staging_budget -1 given; it must be 0 or more bytes");
}

TEST(RedistributeErrorTest, PricesMustNotBeNegative) {
  for (auto price : {&CostModel::launch_ps, &CostModel::message_ps, &CostModel::byte_ps,
                     &CostModel::packed_byte_ps}) {
    PlanOptions options{.cost = {1, 2, 3, 4}};
    options.cost.*price = -7;
    const CostModel& cost = options.cost;
    expect_refused(options,
                   concat("plan_redistribute: a negative price given in the cost model "
                          "(launch ",
                          cost.launch_ps, ", message ", cost.message_ps, ", byte ", cost.byte_ps,
                          ", packed byte ", cost.packed_byte_ps, " ps); prices must be 0 or more"));
  }
}

TEST(RedistributeErrorTest, OptionsAreCheckedEvenWhenNothingIsToDo) {
  EXPECT_THAT([] { return planned("2", "R", "R", {8}, {.element_size = 0}); },
              throws_invalid_argument("plan_redistribute: element_size 0 given; it is the bytes of "
                                      "one element, at least 1"));
}

TEST(RedistributeErrorTest, ASmallBudgetIsRefusedWithWhatIsNeeded) {
  // Seven elements: three others to send to, three to receive from, and one more.
  expect_refused({.staging_budget = 27},
                 "plan_redistribute: staging_budget 27 bytes given for [8,8][S(0),R] on "
                 "[dp=2, tp=2] to [8,8][R,S(0)] on [dp=2, tp=2]; it must be at least 28 bytes, one "
                 "element for each message in flight and one more");
}

TEST(RedistributeErrorTest, ExactlyTheNeededBudgetIsEnough) {
  const auto plan = plan_redistribute(small("S0,R"), small("R,S0"), {.staging_budget = 28});
  const PlanSummary ranks = plan.summary();
  EXPECT_LE(ranks.most_staging_bytes, 28);
  EXPECT_LE(ranks.most_peak_bytes, (32 + 32) * 4 + 28);
  EXPECT_FALSE(ranks.above_bound);
  EXPECT_GT(plan.steps().front().rounds, 1);
}

TEST(RedistributeErrorTest, BetweenMeshesAllRanksOfBothMayBePeers) {
  const Layout from = spelled("2", "S0", {64});
  const Layout to(MeshShape({3}, {}, {2, 3, 4}), {Shard(0)}, {64});
  EXPECT_THAT([&] { return plan_redistribute(from, to, {.element_size = 8, .staging_budget = 0}); },
              throws_invalid_argument(
                  "plan_redistribute: staging_budget 0 bytes given for [64][S(0)] on [2] to "
                  "[64][S(0)] on [3]@2..4; it must be at least 48 bytes, one element for each "
                  "message in flight and one more"));
  EXPECT_NO_THROW((void)plan_redistribute(from, to, {.element_size = 8, .staging_budget = 48}));
}

TEST(RedistributeErrorTest, LocalPlansNeedNoBudget) {
  EXPECT_TRUE(plan_redistribute(small("R,R"), small("S0,S1"), {.staging_budget = 0}).is_local());
}

TEST(RedistributeErrorTest, CollectivesWithoutBuffersNeedNoBudget) {
  const auto plan = planned("4", "S0", "R", {64, 64}, {.staging_budget = 0});
  EXPECT_EQ(plan.steps().front().kind, StepKind::all_gather);
  EXPECT_EQ(plan.summary().most_staging_bytes, 0);
}

}  // namespace
}  // namespace tessera::test
