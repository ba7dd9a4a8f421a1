#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plan/op_rule_ops.h"
#include "plan/op_rule_oracle.h"
#include "support/random_layout.h"
#include "tessera/plan/op_choice.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {
namespace {

/// An op with its rule, and how to run it.
struct NamedOp {
  const char* rule;
  LocalOp op;
};

const std::vector<NamedOp>& named_ops() {
  static const std::vector<NamedOp> ops = {
      {"mm: (m k), (k n) -> (m n) | k: sum | linear {0}, {1}",
       LetterOp{{"mk", "kn"}, "mn", product_of}},
      {"addmm: (n), (m k), (k n) -> (m n) | k: sum {0} | linear {0 1}, {0 2}", add_matrix_product},
      {"add: (a b), (a b) -> (a b) | linear {0 1}", LetterOp{{"ab", "ab"}, "ab", sum_of}},
      {"add: (a b), (1 b) -> (a b) | linear {0 1}", LetterOp{{"ab", "1b"}, "ab", sum_of}},
      {"mul: (a b), (b) -> (a b) | linear {0}, {1}", LetterOp{{"ab", "b"}, "ab", product_of}},
      {"maximum: (a b), (a 1) -> (a b)",
       LetterOp{{"ab", "a1"}, "ab", [](const Scalars& x) { return std::max(x[0], x[1]); }}},
      {"mean: (a b) -> (a) | b: mean | linear {0}", LetterOp{{"ab"}, "a", first_of, ReduceOp::avg}},
      {"mean: (a b) -> () | a b: mean | linear {0}", LetterOp{{"ab"}, "", first_of, ReduceOp::avg}},
      {"amax: (a b) -> (1 b) | a: max", LetterOp{{"ab"}, "1b", first_of, ReduceOp::max}},
      {"t: (a b) -> (b a) | linear {0}", LetterOp{{"ab"}, "ba", first_of}},
      {"softmax: (b s) -> (b s) | s: whole", softmax},
      {"norm_backward: (b d), (b d) -> (b d), (d), (b 1) | b: sum, d: whole", row_norm_backward},
  };
  return ops;
}

/// A call of a random op on random arrays in random layouts.
struct RandomCall {
  Trial trial;
  std::vector<OpInput> inputs;
};

RandomCall random_call(Random& random, const MeshShape& mesh) {
  const NamedOp& named = random.pick(named_ops());
  RandomCall call{{OpRule::parse(named.rule), named.op, {}}, {}};
  const OpRule& rule = call.trial.rule;
  Shape sizes(rule.factors().size());
  for (auto& size : sizes) size = random.one_in(10) ? 0 : random.between(1, 9);
  for (const auto& dims : rule.inputs()) {
    Shape shape;
    for (const auto dim : dims) shape.push_back(dim < 0 ? 1 : sizes[static_cast<std::size_t>(dim)]);
    call.trial.inputs.push_back(random_array(random, shape));
    const std::vector<ReduceOp> ops = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max};
    const Layout layout = random_layout_on(
        random, mesh, shape, {.max_split_factor = random.one_in(4) ? 2 : 0, .partial_ops = ops});
    call.inputs.push_back({layout, random.one_in(2) ? 4 : 8});
  }
  return call;
}

bool has_split_factor(const Placement& placement, std::int64_t split_factor) {
  const auto* strided = std::get_if<StridedShard>(&placement);
  return strided != nullptr && strided->split_factor == split_factor;
}

/// True when inputs may go along a mesh dim as a strategy asks, and there is a reason for it.
bool is_candidate(const RandomCall& call, std::size_t mesh_dim, const Strategy& strategy) {
  bool strided_is_there = false;
  bool partial_is_there = false;
  bool strided_is_wanted = false;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Placement& now = call.inputs[i].layout.placements()[mesh_dim];
    const Placement& wanted = strategy.inputs[i];
    if (is_partial(now) && is_partial(wanted) && now != wanted) return false;
    strided_is_there |= has_split_factor(now, 2) && now == wanted;
    strided_is_wanted |= has_split_factor(wanted, 2);
    partial_is_there |= is_partial(now) && now == strategy.outputs[0];
  }
  const bool passes_partial = !strategy.factor && is_partial(strategy.outputs[0]);
  return (!strided_is_wanted || strided_is_there) && (!passes_partial || partial_is_there);
}

/// The bytes moved by a combination, and those of the reductions that it is charged with. Written
/// apart from the library, from its documentation.
std::int64_t cost_of(const RandomCall& call, const MeshShape& mesh,
                     const Combination& combination) {
  const Placed placed = place(call.trial, mesh, combination);
  std::int64_t cost = 0;
  std::int64_t element_size = 0;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    element_size = std::max(element_size, call.inputs[i].element_size);
    cost +=
        redistribution_bytes(call.inputs[i].layout, placed.inputs[i], call.inputs[i].element_size);
  }
  for (const auto& output : placed.outputs) {
    std::int64_t ranks = 1;
    for (std::size_t dim = 0; dim < mesh.sizes().size(); ++dim) {
      bool fits = true;
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const Placement& now = call.inputs[i].layout.placements()[dim];
        fits &= is_replicate(now) || now == combination.strategies[dim].inputs[i];
      }
      if (!fits && is_partial(output.placements()[dim])) ranks *= mesh.sizes()[dim];
    }
    const auto chunk = chunk_extent(output.local_numel(0), ranks, 0).size;
    cost += (ranks - 1) * chunk * element_size;
  }
  return cost;
}

/// The orders in which a mesh of two dims may cut a shared dim: reversed only if an input does.
std::vector<std::vector<std::int64_t>> orders_of(const RandomCall& call) {
  for (const auto& input : call.inputs) {
    for (std::int64_t dim = 0; dim < input.layout.ndim(); ++dim) {
      const auto splits = input.layout.splits(dim);
      if (splits.size() == 2 && splits[0].mesh_dim == 1) return {{}, {1, 0}};
    }
  }
  return {{}};
}

/// The least that any combination costs, on a mesh of up to two dims.
std::int64_t least_cost(const RandomCall& call, const MeshShape& mesh) {
  auto strategies = call.trial.rule.strategies();
  for (std::size_t i = 0; i < call.trial.rule.factors().size(); ++i) {
    if (call.trial.rule.factors()[i].kind == FactorKind::whole) continue;
    strategies.push_back(call.trial.rule.shard_factor(i, 2));
  }
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const Shape choices(mesh.sizes().size(), std::ssize(strategies));
  for_each_index(choices, [&](const Shape& picks) {
    Combination combination;
    for (std::size_t dim = 0; dim < picks.size(); ++dim) {
      const Strategy& strategy = strategies[static_cast<std::size_t>(picks[dim])];
      if (mesh.sizes()[dim] > 1 && !is_candidate(call, dim, strategy)) return;
      combination.strategies.push_back(strategy);
    }
    for (const auto& order : orders_of(call)) {
      combination.order = order;
      least = std::min(least, cost_of(call, mesh, combination));
    }
  });
  return least;
}

std::string text_of(const RandomCall& call, const OpChoice& choice) {
  std::vector<Layout> now;
  for (const auto& input : call.inputs) now.push_back(input.layout);
  return concat(call.trial.rule, " of ", joined(now), " by ", joined(choice.strategies, " | "));
}

TEST(ChooseLayoutsPropertyTest, ResultsAreRightAndNobodyCanDoItForLess) {
  std::int64_t moving = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const MeshShape mesh = random_mesh(random, {.max_dims = 2, .max_size = 4, .max_ranks = 16});
    const RandomCall call = random_call(random, mesh);
    const OpChoice choice = choose_layouts(call.trial.rule, call.inputs);
    const std::string text = concat("seed ", seed, ": ", text_of(call, choice));
    EXPECT_TRUE(choice.exhaustive);

    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      bytes += redistribution_bytes(call.inputs[i].layout, choice.inputs[i],
                                    call.inputs[i].element_size);
    }
    EXPECT_EQ(choice.bytes, bytes) << text;
    EXPECT_EQ(choice.bytes + choice.charged_bytes, least_cost(call, mesh)) << text;
    moving += bytes > 0 ? 1 : 0;

    const auto fault = find_fault(random, call.trial, run_whole(call.trial),
                                  {choice.inputs, choice.outputs, choice.mean_count});
    EXPECT_FALSE(fault) << text << ": " << fault.value_or("");
  }
  EXPECT_GT(moving, 1000) << "too many calls had nothing to choose";
}

TEST(ChooseLayoutsPropertyTest, FixedOutputsAreMetWithRightResults) {
  std::int64_t met = 0;
  std::int64_t refused = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const MeshShape mesh = random_mesh(random, {.max_dims = 2, .max_size = 4, .max_ranks = 16});
    const RandomCall call = random_call(random, mesh);
    ChooseOptions options;
    const auto sizes = call.trial.factor_sizes();
    for (std::size_t i = 0; i < call.trial.rule.outputs().size(); ++i) {
      options.fixed_outputs.emplace_back();
      if (i > 0) continue;
      options.fixed_outputs[0] =
          random_layout_on(random, mesh, call.trial.rule.output_shape(i, sizes),
                           {.max_split_factor = 2, .partial_ops = {ReduceOp::sum, ReduceOp::max}});
    }
    try {
      const OpChoice choice = choose_layouts(call.trial.rule, call.inputs, options);
      EXPECT_EQ(choice.outputs[0], *options.fixed_outputs[0]);
      const auto fault = find_fault(random, call.trial, run_whole(call.trial),
                                    {choice.inputs, choice.outputs, choice.mean_count});
      EXPECT_FALSE(fault) << "seed " << seed << ": " << text_of(call, choice) << ": "
                          << fault.value_or("");
      ++met;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find("the caller wants output 0"), std::string::npos)
          << "seed " << seed << ": " << error.what();
      ++refused;
    }
  }
  EXPECT_GT(met, 500);
  EXPECT_GT(refused, 100) << "an op may not give what is asked for";
}

TEST(ChooseLayoutsPropertyTest, TakingTurnsIsRightAndSeldomDearer) {
  std::int64_t dearer = 0;
  constexpr std::uint64_t kCalls = 2000;
  for (std::uint64_t seed = 0; seed < kCalls; ++seed) {
    Random random(seed);
    const MeshShape mesh({2, random.between(1, 3)});
    const RandomCall call = random_call(random, mesh);
    const OpChoice best = choose_layouts(call.trial.rule, call.inputs);
    const OpChoice quick = choose_layouts(call.trial.rule, call.inputs, {.max_combinations = 1});
    const std::int64_t best_cost = best.bytes + best.charged_bytes;
    const std::int64_t quick_cost = quick.bytes + quick.charged_bytes;
    EXPECT_GE(quick_cost, best_cost);
    dearer += quick_cost > best_cost ? 1 : 0;
    const auto fault = find_fault(random, call.trial, run_whole(call.trial),
                                  {quick.inputs, quick.outputs, quick.mean_count});
    EXPECT_FALSE(fault) << "seed " << seed << ": " << fault.value_or("");
  }
  EXPECT_LT(dearer * 50, kCalls) << "one in fifty";
}

TEST(ChooseLayoutsPropertyTest, TheSameArgumentsGiveTheSameChoice) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::vector<OpChoice> choices;
    for (int i = 0; i < 2; ++i) {
      Random random(seed);
      const MeshShape mesh = random_mesh(random, {.max_dims = 3, .max_size = 3, .max_ranks = 18});
      const RandomCall call = random_call(random, mesh);
      choices.push_back(choose_layouts(call.trial.rule, call.inputs));
    }
    EXPECT_EQ(choices[0].strategies, choices[1].strategies);
    EXPECT_EQ(choices[0].inputs, choices[1].inputs);
    EXPECT_EQ(choices[0].outputs, choices[1].outputs);
    EXPECT_EQ(choices[0].bytes, choices[1].bytes);
  }
}

TEST(ChooseLayoutsPropertyTest, MeshesOfManyDimsTakeTurnsUnlessNothingMoves) {
  const MeshShape mesh({2, 2, 2, 2, 2, 2});
  const OpRule rule = OpRule::parse(named_ops()[0].rule);
  const OpInput left{Layout(mesh, parse_placements("S0,S1,R,S0,P,R"), {64, 64}), 4};
  const OpInput right{Layout(mesh, parse_placements("R,S0,S1,R,R,R"), {64, 64}), 4};
  const OpInput odd{Layout(mesh, parse_placements("R,S0,S1,R,R,S0"), {64, 64}), 4};

  const OpChoice kept = choose_layouts(rule, {left, right});
  EXPECT_TRUE(kept.exhaustive);
  EXPECT_EQ(kept.bytes, 0);
  EXPECT_EQ(to_string(kept.outputs[0].placements()), "[S(0),P(sum),S(1),S(0),P(sum),R]");

  const OpChoice turns = choose_layouts(rule, {left, odd});
  EXPECT_FALSE(turns.exhaustive);
  EXPECT_EQ(turns.bytes, 0) << "a replica is cut";
  EXPECT_EQ(to_string(turns.outputs[0].placements()), "[S(0),P(sum),S(1),S(0),P(sum),P(sum)]");
}

}  // namespace
}  // namespace tessera::test
