#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/labelled_array.h"
#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/plan/op_rule.h"

/// Tries a rule out: an op on local arrays of all ranks, in every way in which the rule says that
/// this is right, against the same op on the whole arrays.
namespace tessera::test {

/// What an op sees on one rank.
struct LocalCall {
  std::vector<Array> inputs;
  /// Which part of the whole input each of them is.
  std::vector<Part> parts;
  /// By what to divide sums that are to become means, when not by the local count.
  std::optional<std::int64_t> mean_count = {};
  /// For ops whose output sizes do not follow from the inputs.
  std::vector<Shape> output_shapes = {};
};

/// An op that knows nothing of ranks but what a `LocalCall` says.
using LocalOp = std::function<std::vector<Array>(const LocalCall&)>;

/// An op, its rule, and whole arrays to try it on.
struct Trial {
  OpRule rule;
  LocalOp op;
  std::vector<Array> inputs;
  std::vector<FactorSize> sizes = {};

  [[nodiscard]] std::vector<std::int64_t> factor_sizes() const {
    std::vector<Shape> shapes;
    for (const auto& input : inputs) shapes.push_back(input.shape);
    return rule.bind(shapes, sizes);
  }
};

/// The strategies of all mesh dims, and the order in which they cut a shared dim.
struct Combination {
  std::vector<Strategy> strategies;
  std::vector<std::int64_t> order;
};

/// Where all tensors of a trial are.
struct Placed {
  std::vector<Layout> inputs;
  std::vector<Layout> outputs;
  std::optional<std::int64_t> mean_count;
};

/// The number of elements behind each mean, when it is not the local one.
inline std::optional<std::int64_t> global_mean_count(const Trial& trial,
                                                     const Combination& combination) {
  const auto& factors = trial.rule.factors();
  const auto sizes = trial.factor_sizes();
  std::int64_t count = 1;
  bool cut = false;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (factors[i].kind != FactorKind::mean) continue;
    count *= sizes[i];
    for (const auto& strategy : combination.strategies) cut |= strategy.factor == i;
  }
  return cut ? std::optional(count) : std::nullopt;
}

/// Returns where a combination puts all tensors.
inline Placed place(const Trial& trial, const MeshShape& mesh, const Combination& combination) {
  Placed placed;
  const auto& order = combination.order;
  for (std::size_t i = 0; i < trial.inputs.size(); ++i) {
    Placements placements;
    for (const auto& strategy : combination.strategies) placements.push_back(strategy.inputs[i]);
    placed.inputs.emplace_back(mesh, placements, trial.inputs[i].shape, order);
  }
  const auto sizes = trial.factor_sizes();
  for (std::size_t i = 0; i < trial.rule.outputs().size(); ++i) {
    Placements placements;
    for (const auto& strategy : combination.strategies) placements.push_back(strategy.outputs[i]);
    placed.outputs.emplace_back(mesh, placements, trial.rule.output_shape(i, sizes), order);
  }
  placed.mean_count = global_mean_count(trial, combination);
  return placed;
}

inline std::vector<Array> run_whole(const Trial& trial) {
  LocalCall call{trial.inputs, {}};
  const MeshShape one({});
  for (const auto& input : trial.inputs) {
    call.parts.push_back(Layout(one, {}, input.shape).part_at(0));
  }
  for (std::size_t i = 0; i < trial.rule.outputs().size(); ++i) {
    call.output_shapes.push_back(trial.rule.output_shape(i, trial.factor_sizes()));
  }
  return trial.op(call);
}

/// Returns what goes wrong when all ranks run the op on parts placed like this, or nothing.
inline std::optional<std::string> find_fault(Random& random, const Trial& trial,
                                             const std::vector<Array>& expected,
                                             const Placed& placed) {
  const MeshShape& mesh = placed.inputs.front().mesh();
  std::vector<LocalCall> calls(static_cast<std::size_t>(mesh.num_ranks()));
  for (std::size_t i = 0; i < trial.inputs.size(); ++i) {
    const auto locals = distribute(random, trial.inputs[i], placed.inputs[i]);
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      calls[rank].inputs.push_back(locals[rank]);
      calls[rank].parts.push_back(placed.inputs[i].part_at(static_cast<std::int64_t>(rank)));
    }
  }
  std::vector<std::vector<Array>> outputs(expected.size());
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    for (const auto& layout : placed.outputs) {
      calls[rank].output_shapes.push_back(layout.local_shape(static_cast<std::int64_t>(rank)));
    }
    calls[rank].mean_count = placed.mean_count;
    auto results = trial.op(calls[rank]);
    for (std::size_t i = 0; i < results.size(); ++i) outputs[i].push_back(std::move(results[i]));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (const auto problem = difference(outputs[i], placed.outputs[i], expected[i])) {
      return concat(trial.rule, " from ", joined(placed.inputs), ": output ", i, " in ",
                    placed.outputs[i], ": ", *problem);
    }
  }
  return std::nullopt;
}

/// What came of many combinations.
struct Outcome {
  std::int64_t combinations = 0;
  std::int64_t faults = 0;
  std::string first_fault;

  Outcome& operator+=(const Outcome& other) {
    if (faults == 0) first_fault = other.first_fault;
    combinations += other.combinations;
    faults += other.faults;
    return *this;
  }
};

/// Returns the rule's strategies and, for every factor that may be sharded, a strided shard.
inline std::vector<Strategy> all_strategies(Random& random, const OpRule& rule) {
  auto all = rule.strategies();
  for (std::size_t i = 0; i < rule.factors().size(); ++i) {
    if (rule.factors()[i].kind == FactorKind::whole) continue;
    all.push_back(rule.shard_factor(i, random.between(2, 3)));
  }
  return all;
}

/// Tries every combination of `strategies` over the dims of `mesh`.
inline Outcome try_all(Random& random, const Trial& trial, const MeshShape& mesh,
                       const std::vector<Strategy>& strategies) {
  Outcome outcome;
  const auto expected = run_whole(trial);
  const Shape choices(static_cast<std::size_t>(mesh.ndim()), std::ssize(strategies));
  for_each_index(choices, [&](const Shape& picks) {
    Combination combination{{}, random_shard_order(random, mesh.ndim())};
    for (const auto pick : picks) {
      combination.strategies.push_back(strategies[static_cast<std::size_t>(pick)]);
    }
    ++outcome.combinations;
    if (const auto fault = find_fault(random, trial, expected, place(trial, mesh, combination))) {
      outcome += Outcome{0, 1, *fault};
    }
  });
  return outcome;
}

/// Tries every combination of all strategies of random trials on random meshes of one or two dims.
inline Outcome try_rule(std::uint64_t seed, std::int64_t trials,
                        const std::function<Trial(Random&)>& make) {
  Outcome outcome;
  for (std::int64_t i = 0; i < trials; ++i) {
    Random random(seed * 1'000'003 + static_cast<std::uint64_t>(i));
    const MeshShape mesh = random_mesh(random, {.max_dims = 2, .max_size = 4, .max_ranks = 16});
    const Trial trial = make(random);
    outcome += try_all(random, trial, mesh, all_strategies(random, trial.rule));
  }
  return outcome;
}

}  // namespace tessera::test
