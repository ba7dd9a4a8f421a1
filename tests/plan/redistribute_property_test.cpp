#include <optional>

#include <gtest/gtest.h>

#include "support/random_layout.h"
#include "support/simulator.h"
#include "tessera/base/check.h"
#include "tessera/plan/plan_cache.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {
namespace {

const std::vector<ReduceOp> kAllOps = {ReduceOp::sum, ReduceOp::avg,     ReduceOp::min,
                                       ReduceOp::max, ReduceOp::product, ReduceOp::band,
                                       ReduceOp::bor, ReduceOp::bxor};

struct Pair {
  Layout from;
  Layout to;
};

struct PairOptions {
  std::vector<ReduceOp> ops = {};
  bool other_mesh = false;
};

/// Prices under which different candidates win: latency, bandwidth, packing.
CostModel random_cost(Random& random) {
  const auto price = [&] { return random.one_in(4) ? 0 : random.between(1, 1'000'000); };
  return {price(), price(), price(), price()};
}

/// True when a mesh dim would turn contributions of one op into those of another.
bool is_refused(const Layout& from, const Layout& to) {
  if (!from.mesh().same_ranks(to.mesh())) return false;
  for (std::size_t i = 0; i < from.placements().size(); ++i) {
    const bool both = is_partial(from.placements()[i]) && is_partial(to.placements()[i]);
    if (both && from.mesh().sizes()[i] > 1 && from.placements()[i] != to.placements()[i])
      return true;
  }
  return false;
}

std::optional<Pair> random_pair(Random& random, const PairOptions& options) {
  const MeshOptions mesh_options{.max_dims = 3, .max_size = 4, .max_ranks = 12, .rank_maps = true};
  const ShapeOptions shape_options{.max_dims = 3, .max_size = 13, .max_numel = 150};
  const MeshShape mesh = random_mesh(random, mesh_options);
  const Shape shape = random_shape(random, shape_options);
  const MeshShape to_mesh = options.other_mesh ? random_mesh(random, mesh_options) : mesh;
  const PlacementOptions placements{.max_split_factor = random.one_in(2) ? 3 : 0,
                                    .partial_ops = options.ops};
  Pair pair{random_layout_on(random, mesh, shape, placements),
            random_layout_on(random, to_mesh, shape, placements)};
  return is_refused(pair.from, pair.to) ? std::nullopt : std::optional(pair);
}

/// Runs `check(random, pair)` on `count` random pairs; each failure shows its seed.
template <typename Check>
void for_random_pairs(std::uint64_t first_seed, std::int64_t count, const PairOptions& options,
                      Check check) {
  std::int64_t done = 0;
  for (std::uint64_t seed = first_seed; done < count && !::testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    const auto pair = random_pair(random, options);
    if (!pair) continue;
    SCOPED_TRACE(concat("seed ", seed, ": ", pair->from, " to ", pair->to));
    check(random, *pair);
    ++done;
  }
}

void expect_plan_moves(Random& random, const Pair& pair, const std::vector<Step>& steps) {
  const DistributedTensor tensor = random_tensor(random, pair.from);
  const Locals locals = simulate(steps, tensor.locals);
  std::string description;
  for (const auto& step : steps) description += concat(step, "\n");
  EXPECT_EQ(find_fault(pair.to, steps.empty() ? tensor.locals : locals, tensor.value), "")
      << description;
}

void expect_chosen_plan_moves(Random& random, const Pair& pair) {
  const PlanOptions options{.element_size = 8, .cost = random_cost(random)};
  expect_plan_moves(random, pair, plan_redistribute(pair.from, pair.to, options).steps());
}

TEST(RedistributePropertyTest, ChosenPlansMoveShards) {
  for_random_pairs(1, 20'000, {}, expect_chosen_plan_moves);
}

TEST(RedistributePropertyTest, ChosenPlansReduceAndFill) {
  for_random_pairs(1'000'000, 20'000, {.ops = kAllOps}, expect_chosen_plan_moves);
}

TEST(RedistributePropertyTest, ChosenPlansMoveBetweenMeshes) {
  for_random_pairs(2'000'000, 10'000, {.ops = kAllOps, .other_mesh = true},
                   expect_chosen_plan_moves);
}

TEST(RedistributePropertyTest, EveryCandidateMovesTheSame) {
  const auto check = [](Random& random, const Pair& pair) {
    const PlanOptions options{.element_size = 4, .cost = random_cost(random)};
    for (const auto& candidate : plan_redistribute(pair.from, pair.to, options).candidates()) {
      SCOPED_TRACE(candidate.name);
      expect_plan_moves(random, pair, candidate.steps);
    }
  };
  for_random_pairs(3'000'000, 6'000, {.ops = kAllOps}, check);
  for_random_pairs(4'000'000, 4'000, {.ops = kAllOps, .other_mesh = true}, check);
}

TEST(RedistributePropertyTest, RoundsStayWithinTheStagingBudget) {
  std::int64_t in_rounds = 0;
  const auto check = [&](Random& random, const Pair& pair) {
    const std::int64_t ranks = pair.from.mesh().num_ranks() + pair.to.mesh().num_ranks();
    const PlanOptions options{.element_size = 4,
                              .staging_budget = 4 * random.between(ranks + 1, ranks + 40),
                              .cost = random_cost(random)};
    const auto plan = plan_redistribute(pair.from, pair.to, options);
    expect_plan_moves(random, pair, plan.steps());
    for (const auto& step : plan.steps()) in_rounds += step.rounds > 1 ? 1 : 0;
    const std::int64_t most = (pair.from.local_numel(0) + pair.to.local_numel(0)) * 4;
    for (const auto rank : pair.to.mesh().ranks()) {
      const auto own = plan.for_rank(rank);
      EXPECT_LE(own->staging_bytes, options.staging_budget);
      EXPECT_LE(own->peak_bytes, most + options.staging_budget);
    }
  };
  for_random_pairs(5'000'000, 4'000, {.ops = kAllOps}, check);
  for_random_pairs(6'000'000, 4'000, {.ops = kAllOps, .other_mesh = true}, check);
  EXPECT_GT(in_rounds, 1'000) << "the budgets are too generous to test anything";
}

/// Without Partial, no rank receives more than it lacks, unless that is dearer, and then the
/// explanation says so.
void expect_bound_met(Random& random, const Pair& pair) {
  const PlanOptions options{.element_size = 4, .cost = random_cost(random)};
  const auto plan = plan_redistribute(pair.from, pair.to, options);
  bool above = false;
  for (const auto* layout : {&pair.from, &pair.to}) {
    for (const auto rank : layout->mesh().ranks()) {
      const auto own = plan.for_rank(rank);
      EXPECT_GE(own->traffic.received_bytes, own->bound_bytes) << "rank " << rank;
      above |= own->traffic.received_bytes > own->bound_bytes;
    }
  }
  if (!above) return;
  std::int64_t direct_cost = -1;
  for (const auto& candidate : plan.candidates()) {
    if (candidate.name == "direct exchange") direct_cost = candidate.cost_ps;
  }
  EXPECT_LE(plan.cost_ps(), direct_cost);
  EXPECT_NE(plan.explain().find("above the bound by choice"), std::string::npos) << plan.explain();
}

TEST(RedistributePropertyTest, WithoutPartialTheBoundIsMetOrTheExcessExplained) {
  for_random_pairs(7'000'000, 4'000, {}, expect_bound_met);
  for_random_pairs(8'000'000, 2'000, {.other_mesh = true}, expect_bound_met);
}

TEST(RedistributePropertyTest, DirectExchangeAlwaysMeetsTheBound) {
  const auto check = [](Random&, const Pair& pair) {
    // Messages and launches are free, so nothing beats fewest bytes.
    const PlanOptions options{.element_size = 4, .cost = {0, 0, 1, 0}};
    const auto plan = plan_redistribute(pair.from, pair.to, options);
    for (const auto rank : pair.to.mesh().ranks()) {
      const auto own = plan.for_rank(rank);
      if (plan.steps().size() == 1 && plan.steps().front().kind == StepKind::exchange) {
        EXPECT_EQ(own->traffic.received_bytes, own->bound_bytes) << "rank " << rank;
      }
    }
  };
  for_random_pairs(9'000'000, 3'000, {}, check);
  for_random_pairs(10'000'000, 3'000, {.other_mesh = true}, check);
}

}  // namespace
}  // namespace tessera::test
