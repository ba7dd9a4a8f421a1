#include "tessera/plan/redistribute_plan.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spelled_plan.h"
#include "support/simulator.h"

namespace tessera::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Expects that executing a plan gives every rank what the destination says.
void expect_moves(const RedistributePlan& plan) {
  Random random(1);
  const DistributedTensor tensor = random_tensor(random, plan.from());
  EXPECT_EQ(find_fault(plan.to(), simulate(plan.steps(), tensor.locals), tensor.value), "")
      << plan.explain();
}

// The table of research/other-systems.md, section 2: received per rank, in units of N/P.
struct BoundCase {
  const char* name;
  const char* mesh;
  const char* from;
  const char* to;
  Shape shape;
  double most;
  double mean;
};

void PrintTo(const BoundCase& bound, std::ostream* os) { *os << bound.name; }

class BoundTest : public ::testing::TestWithParam<BoundCase> {};

TEST_P(BoundTest, TheChosenPlanReceivesTheBoundAndNoMore) {
  const BoundCase& expected = GetParam();
  const auto plan = planned(expected.mesh, expected.from, expected.to, expected.shape);
  const auto ranks = plan.summary();
  ASSERT_TRUE(ranks.complete);
  const double unit = static_cast<double>(plan.from().numel() * plan.options().element_size) /
                      static_cast<double>(ranks.ranks.size());
  EXPECT_EQ(static_cast<double>(ranks.most_bound_bytes) / unit, expected.most);
  EXPECT_EQ(static_cast<double>(ranks.mean_bound_bytes) / unit, expected.mean);
  for (const auto& part : ranks.parts) {
    EXPECT_EQ(part->traffic.received_bytes, part->bound_bytes) << plan.explain();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, BoundTest,
    ::testing::Values(
        BoundCase{"OneDimToAnother", "8", "S0", "S1", {1024, 1024}, 0.875, 0.875},
        BoundCase{"TransposedOn2x4", "2,4", "S0,S1", "S1,S0", {1024, 1024}, 1.0, 0.75},
        BoundCase{"TransposedOn4x4", "4,4", "S0,S1", "S1,S0", {1024, 1024}, 1.0, 0.75},
        BoundCase{"Xla15207", "x=4,y=2", "S2,S0", "S1,S1", {512, 512, 256}, 0.875, 0.875},
        BoundCase{"ThreeDims", "2,2,2", "S0,S0,S1", "S0,S1,S2", {256, 256, 256}, 1.0, 0.75},
        BoundCase{"ReplicasSwapped", "2,4", "R,S0", "S0,R", {1024, 1024}, 4.0, 3.0}),
    [](const auto& test) { return std::string(test.param.name); });

// Seed 003: what PyTorch's redistribute has to decompose.

TEST(RedistributePlanTest, MisNestedShardsMoveWithoutGathering) {
  const auto plan = planned("dp=2,tp=2", "S0,S0", "R,S0", {8, 8});
  EXPECT_THAT(printed(plan.steps()), ElementsAre("exchange(dp, tp): [S(0),S(0)] -> [R,S(0)]"));
  EXPECT_FALSE(plan.summary().above_bound);
  expect_moves(plan);
}

TEST(RedistributePlanTest, UnevenLogicalShapesMoveBetweenAllNestings) {
  const std::vector<const char*> nestings = {"R,R", "S0,R", "R,S0", "S0,S0", "S0,S1", "S1,S0"};
  for (const std::int64_t rows : {0, 1, 3, 5, 7, 8}) {
    for (const char* mesh : {"2,2", "2,3", "4,2"}) {
      for (const char* from : nestings) {
        for (const char* to : nestings) expect_moves(planned(mesh, from, to, {rows, 5}));
      }
    }
  }
}

/// Prices under which only the number of messages counts, so that collectives beat the exchange.
constexpr PlanOptions kMessagesAreDear = {.cost = {1'000, 1'000'000, 1, 1}};

TEST(RedistributePlanTest, AChainReplicatesFirstAndShardsThen) {
  const auto plan = planned("dp=2,tp=2", "S0,S0", "S1,S1", {8, 8}, kMessagesAreDear);
  EXPECT_THAT(printed(plan.steps()), ElementsAre("all_gather(dp, tp, dim 0): [S(0),S(0)] -> [R,R]",
                                                 "slice: [R,R] -> [S(1),S(1)]"));
  expect_moves(plan);
}

/// True when `inner` are the last of `cuts`, in order.
bool are_innermost(std::span<const Split> cuts, const std::vector<std::int64_t>& inner) {
  if (cuts.size() < inner.size()) return false;
  const auto last = cuts.last(inner.size());
  return std::equal(
      last.begin(), last.end(), inner.begin(), inner.end(),
      [](const Split& cut, std::int64_t mesh_dim) { return cut.mesh_dim == mesh_dim; });
}

bool starts_with(std::span<const Split> cuts, std::span<const Split> prefix) {
  return prefix.size() <= cuts.size() && std::equal(prefix.begin(), prefix.end(), cuts.begin());
}

void expect_nested_in_order(const Step& step) {
  if (step.kind == StepKind::all_gather) {
    EXPECT_TRUE(are_innermost(step.from.splits(step.tensor_dim), step.mesh_dims)) << step;
  }
  for (std::int64_t dim = 0; dim < step.from.ndim() && step.kind == StepKind::slice; ++dim) {
    EXPECT_TRUE(starts_with(step.to.splits(dim), step.from.splits(dim))) << step;
  }
}

TEST(RedistributePlanTest, ChainsReplicateInnerCutsAndAddCutsInside) {
  const std::vector<const char*> placements = {"S0,S0,S0", "S0,S1,S0", "R,S0,S0", "S0,R,S1",
                                               "S1,S0,R",  "R,S1,S0",  "S0,R,S0"};
  std::int64_t chains = 0;
  for (const char* from : placements) {
    for (const char* to : placements) {
      for (const auto& candidate :
           planned("2,2,2", from, to, {8, 8}, kMessagesAreDear).candidates()) {
        SCOPED_TRACE(concat(from, " to ", to, ": ", candidate.name));
        for (const auto& step : candidate.steps) expect_nested_in_order(step);
        chains += candidate.name == "collectives" && candidate.steps.size() > 1 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(chains, 20);
}

void expect_nothing_to_do(const Layout& from, const Layout& to) {
  const auto plan = plan_redistribute(from, to);
  EXPECT_EQ(plan.name(), "nothing to do");
  EXPECT_THAT(plan.steps(), IsEmpty());
  EXPECT_EQ(plan.cost_ps(), 0);
  EXPECT_TRUE(plan.is_local());
  EXPECT_EQ(plan.summary().most_received_bytes, 0);
}

TEST(RedistributePlanTest, NothingIsToDoBetweenEqualLayouts) {
  for (const char* placements : {"R,R", "S0,S1", "SS(0,2),S0", "P(sum),P(avg)", "P(max),S1"}) {
    const Layout layout = spelled("2,2", placements, {5, 7});
    expect_nothing_to_do(layout, layout);
  }
}

TEST(RedistributePlanTest, NothingIsToDoWhenOnlyOneRankMeshDimsDiffer) {
  for (const char* other : {"R", "S1", "SS(0,3)", "P(sum)", "P(max)"}) {
    expect_nothing_to_do(spelled("2,1", "S0,S0", {5, 7}),
                         spelled("2,1", concat("S0,", other), {5, 7}));
  }
}

TEST(RedistributePlanTest, NothingIsToDoWhenOnlyTheSpellingDiffers) {
  expect_nothing_to_do(spelled("4", "SS(1,1)", {5, 7}), spelled("4", "S(-1)", {5, 7}));
  expect_nothing_to_do(spelled("a=4", "S0", {5, 7}), spelled("b=4", "S0", {5, 7}));
}

TEST(RedistributePlanTest, EqualPartsOnAnotherMeshOfTheSameRanksStayWhereTheyAre) {
  for (const auto& [from, to] : {std::pair("S0", "S0,S0"), std::pair("R", "R,R")}) {
    const auto plan = plan_redistribute(spelled("4", from, {8, 8}), spelled("2,2", to, {8, 8}));
    EXPECT_EQ(plan.name(), "local");
    EXPECT_TRUE(plan.is_local());
    EXPECT_EQ(plan.summary().most_sent_bytes, 0);
    expect_moves(plan);
  }
}

TEST(RedistributePlanTest, TensorsWithoutElementsOrDimsMove) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}}) {
    for (const auto& [from, to] : {std::pair("P,R", "R,R"), std::pair("R,R", "R,P(max)")}) {
      expect_moves(planned("2,2", from, to, shape));
    }
  }
}

TEST(RedistributePlanTest, MoreMeshAndTensorDimsThanTheSearchKnowsGoDirectly) {
  const auto many_mesh_dims =
      planned("2,1,1,1,1,1,1,1,2", "S0,R,R,R,R,R,R,R,R", "R,R,R,R,R,R,R,R,S0", {5, 3});
  EXPECT_EQ(many_mesh_dims.name(), "direct exchange");
  expect_moves(many_mesh_dims);
  const auto many_tensor_dims = planned("2,2", "S0,S16", "S16,R", Shape(17, 2));
  EXPECT_EQ(many_tensor_dims.name(), "direct exchange");
  EXPECT_EQ(many_tensor_dims.summary().above_bound, false);
}

}  // namespace
}  // namespace tessera::test
