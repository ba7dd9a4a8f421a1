#include "tessera/plan/op_choice.h"

#include <algorithm>
#include <compare>

#include "tessera/base/check.h"
#include "tessera/plan/op_targets.h"

namespace tessera {
namespace {

using detail::Assignment;
using detail::Candidates;
using detail::TargetTable;

/// What is compared, in this order; less is better.
struct Score {
  bool impossible = false;
  std::int64_t cost = 0;
  std::int64_t moved_inputs = 0;
  std::int64_t changed_placements = 0;
  std::int64_t partial_outputs = 0;

  auto operator<=>(const Score&) const = default;
};

void check_arguments(const OpRule& rule, const std::vector<OpInput>& inputs,
                     const ChooseOptions& options) {
  TESSERA_CHECK(inputs.size() == rule.inputs().size(), "choose_layouts: ", inputs.size(),
                " input(s) given; the rule ", rule, " has ", rule.inputs().size(),
                "; pass one for each");
  const MeshShape& mesh = inputs.front().layout.mesh();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TESSERA_CHECK(inputs[i].layout.mesh().same_ranks(mesh), "choose_layouts: input ", i, " of ",
                  rule.name(), " is on ", inputs[i].layout.mesh(), " and input 0 on ", mesh,
                  "; redistribute one of them to the mesh of the other first");
    TESSERA_CHECK(inputs[i].element_size >= 1, "choose_layouts: element_size ",
                  inputs[i].element_size, " given for input ", i, " of ", rule.name(),
                  "; it is the bytes of one element, at least 1");
  }
  TESSERA_CHECK(options.max_combinations >= 1, "choose_layouts: max_combinations ",
                options.max_combinations, " given; it must be at least 1");
}

void check_fixed_outputs(const OpRule& rule, const MeshShape& mesh,
                         const std::vector<Shape>& shapes,
                         const std::vector<std::optional<Layout>>& fixed) {
  TESSERA_CHECK(fixed.empty() || fixed.size() == shapes.size(), "choose_layouts: ", fixed.size(),
                " fixed output(s) given; the rule ", rule, " has ", shapes.size(),
                " output(s); pass an entry for each, or none at all");
  for (std::size_t i = 0; i < fixed.size(); ++i) {
    if (!fixed[i]) continue;
    TESSERA_CHECK(fixed[i]->mesh().same_ranks(mesh), "choose_layouts: output ", i, " of ",
                  rule.name(), " is fixed to ", *fixed[i], " and the inputs are on ", mesh,
                  "; redistribute the inputs to the mesh of the output first");
    TESSERA_CHECK(fixed[i]->shape() == shapes[i], "choose_layouts: output ", i, " of ", rule.name(),
                  " is fixed to ", *fixed[i], " and the inputs give shape [",
                  joined(shapes[i], ","), "]; fix a layout of that shape");
  }
}

/// Compares assignments.
class Search {
 public:
  Search(const OpRule& rule, const std::vector<OpInput>& inputs, const ChooseOptions& options,
         const std::vector<Shape>& output_shapes)
      : rule_(rule),
        inputs_(inputs),
        fixed_(options.fixed_outputs),
        candidates_{inputs.front().layout.mesh(),
                    detail::candidate_strategies(rule, inputs, options.fixed_outputs),
                    detail::candidate_orders(inputs, options.fixed_outputs)} {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      input_tables_.push_back(TargetTable::of_input(candidates_, inputs[i], i));
      element_size_ = std::max(element_size_, inputs[i].element_size);
    }
    for (std::size_t i = 0; i < output_shapes.size(); ++i) {
      output_tables_.push_back(TargetTable::of_output(candidates_, output_shapes[i], i));
    }
  }
  Search(const Search&) = delete;  // The tables point to the candidates.
  Search& operator=(const Search&) = delete;

  OpChoice run(std::int64_t max_combinations) {
    if (const auto unchanged = unchanged_assignment()) return spell_out(*unchanged);
    const bool exhaustive = combinations(max_combinations) <= max_combinations;
    const Assignment best = exhaustive ? compare_all() : improve_by_turns();
    check_possible(best);
    OpChoice choice = spell_out(best);
    choice.exhaustive = exhaustive;
    return choice;
  }

 private:
  bool is_fixed(std::size_t output) const { return output < fixed_.size() && fixed_[output]; }

  /// How many assignments there are; may stop counting beyond `limit`.
  std::int64_t combinations(std::int64_t limit) const {
    std::int64_t count = std::ssize(candidates_.orders);
    for (const auto& strategies : candidates_.strategies) {
      if (count > limit) break;
      count *= std::ssize(strategies);
    }
    return count;
  }

  Assignment compare_all() {
    Assignment best = first_assignment();
    Score best_score = score(best);
    for (std::size_t order = 0; order < candidates_.orders.size(); ++order) {
      Assignment trial = first_assignment();
      trial.order = order;
      do {
        keep_better(trial, best, best_score);
      } while (advance(trial.picks));
    }
    return best;
  }

  /// Lets one mesh dim after the other take its best strategy, while the others stay, until nothing
  /// gets better.
  Assignment improve_by_turns() {
    Assignment best = first_assignment();
    Score best_score = score(best);
    for (std::size_t order = 0; order < candidates_.orders.size(); ++order) {
      for (Assignment start : {closest_assignment(), first_assignment()}) {
        start.order = order;
        keep_better(improved(std::move(start)), best, best_score);
      }
    }
    return best;
  }

  Score score(const Assignment& assignment) {
    Score score;
    for (auto& table : input_tables_) {
      const auto& target = table.at(assignment);
      score.cost += target.bytes;
      score.moved_inputs += target.moved ? 1 : 0;
    }
    for (std::size_t i = 0; i < candidates_.strategies.size(); ++i) {
      const Strategy& strategy = candidates_.strategy(assignment, i);
      score.changed_placements += detail::changed_inputs(strategy, inputs_, i);
      score.partial_outputs += detail::partial_outputs(strategy);
    }
    score.cost += charged_bytes(assignment);
    for (std::size_t i = 0; i < fixed_.size(); ++i) {
      score.impossible |=
          is_fixed(i) && !output_tables_[i].at(assignment).layout.equivalent(*fixed_[i]);
    }
    return score;
  }

  std::int64_t charged_bytes(const Assignment& assignment) {
    std::int64_t charged = 0;
    for (std::size_t i = 0; i < output_tables_.size(); ++i) {
      if (is_fixed(i)) continue;
      std::int64_t ranks = 1;
      for (std::size_t dim = 0; dim < candidates_.strategies.size(); ++dim) {
        const Strategy& strategy = candidates_.strategy(assignment, dim);
        const bool counts = is_partial(strategy.outputs[i]) && must_move(strategy, dim);
        ranks *= counts ? candidates_.mesh.sizes()[dim] : 1;
      }
      if (ranks == 1) continue;
      // Chunk 0 is the largest everywhere, and its owner receives it from everybody else.
      const std::int64_t local = output_tables_[i].at(assignment).layout.local_numel(0);
      charged += (ranks - 1) * ((local + ranks - 1) / ranks) * element_size_;
    }
    return charged;
  }

  Assignment first_assignment() const {
    return {std::vector<std::size_t>(candidates_.strategies.size(), 0), 0};
  }

  Assignment closest_assignment() const {
    Assignment closest;
    for (std::size_t i = 0; i < candidates_.strategies.size(); ++i) {
      closest.picks.push_back(detail::closest_strategy(candidates_.strategies[i], inputs_, i));
    }
    return closest;
  }

  /// The assignment that leaves all inputs as they are, if there is one: then it cannot be beaten,
  /// and most calls are of this kind.
  std::optional<Assignment> unchanged_assignment() {
    Assignment closest = closest_assignment();
    for (; closest.order < candidates_.orders.size(); ++closest.order) {
      const Score found = score(closest);
      if (!found.impossible && found.moved_inputs == 0 && found.cost == 0) return closest;
      if (found.changed_placements > 0) break;
    }
    return std::nullopt;
  }

  bool keep_better(const Assignment& trial, Assignment& best, Score& best_score) {
    const Score found = score(trial);
    if (!(found < best_score)) return false;
    best = trial;
    best_score = found;
    return true;
  }

  /// Counts up, the first mesh dim being the highest digit; false when all have been seen.
  bool advance(std::vector<std::size_t>& picks) const {
    for (std::size_t i = picks.size(); i-- > 0;) {
      if (++picks[i] < candidates_.strategies[i].size()) return true;
      picks[i] = 0;
    }
    return false;
  }

  Assignment improved(Assignment best) {
    constexpr int kMaxSweeps = 8;
    Score best_score = score(best);
    bool better = true;
    for (int sweep = 0; better && sweep < kMaxSweeps; ++sweep) {
      better = false;
      for (std::size_t i = 0; i < candidates_.strategies.size(); ++i) {
        Assignment trial = best;
        for (trial.picks[i] = 0; trial.picks[i] < candidates_.strategies[i].size();
             ++trial.picks[i]) {
          better |= keep_better(trial, best, best_score);
        }
      }
    }
    return best;
  }

  /// True when some input can be used neither as it is along the mesh dim nor as a piece of its
  /// replica.
  bool must_move(const Strategy& strategy, std::size_t mesh_dim) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Placement& now = inputs_[i].layout.placements()[mesh_dim];
      if (!is_replicate(now) && now != strategy.inputs[i]) return true;
    }
    return false;
  }

  /// One mesh dim after the other was checked already; what is left is how they nest.
  void check_possible(const Assignment& assignment) {
    if (!score(assignment).impossible) return;
    std::vector<Layout> layouts;
    for (const auto& layout : fixed_) {
      if (layout) layouts.push_back(*layout);
    }
    detail::throw_invalid_argument(
        concat("choose_layouts: outputs of ", rule_, " are fixed to ", joined(layouts),
               ", which cut one factor in different orders; redistribute one of them first"));
  }

  OpChoice spell_out(const Assignment& assignment) {
    OpChoice choice;
    for (auto& table : input_tables_) {
      const auto& target = table.at(assignment);
      choice.inputs.push_back(target.layout);
      choice.bytes += target.bytes;
    }
    for (std::size_t i = 0; i < output_tables_.size(); ++i) {
      choice.outputs.push_back(is_fixed(i) ? *fixed_[i] : output_tables_[i].at(assignment).layout);
    }
    for (std::size_t i = 0; i < candidates_.strategies.size(); ++i) {
      choice.strategies.push_back(candidates_.strategy(assignment, i));
    }
    choice.charged_bytes = charged_bytes(assignment);
    return choice;
  }

  const OpRule& rule_;
  const std::vector<OpInput>& inputs_;
  const std::vector<std::optional<Layout>>& fixed_;
  Candidates candidates_;
  std::vector<TargetTable> input_tables_;
  std::vector<TargetTable> output_tables_;
  std::int64_t element_size_ = 1;
};

/// The number of elements behind each mean, if a factor of it is cut.
std::optional<std::int64_t> mean_count(const OpRule& rule, const std::vector<Strategy>& strategies,
                                       const MeshShape& mesh,
                                       const std::vector<std::int64_t>& sizes) {
  const auto is_mean = [&](std::size_t i) { return rule.factors()[i].kind == FactorKind::mean; };
  bool cut = false;
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    cut |= mesh.sizes()[i] > 1 && strategies[i].factor && is_mean(*strategies[i].factor);
  }
  if (!cut) return std::nullopt;
  std::int64_t count = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) count *= is_mean(i) ? sizes[i] : 1;
  return count;
}

}  // namespace

OpChoice choose_layouts(const OpRule& rule, const std::vector<OpInput>& inputs,
                        const ChooseOptions& options) {
  check_arguments(rule, inputs, options);
  std::vector<Shape> input_shapes;
  input_shapes.reserve(inputs.size());
  for (const auto& input : inputs) input_shapes.push_back(input.layout.shape());
  const auto sizes = rule.bind(input_shapes, options.sizes);
  std::vector<Shape> output_shapes;
  for (std::size_t i = 0; i < rule.outputs().size(); ++i) {
    output_shapes.push_back(rule.output_shape(i, sizes));
  }
  const MeshShape& mesh = inputs.front().layout.mesh();
  check_fixed_outputs(rule, mesh, output_shapes, options.fixed_outputs);

  OpChoice choice = Search(rule, inputs, options, output_shapes).run(options.max_combinations);
  choice.mean_count = mean_count(rule, choice.strategies, mesh, sizes);
  return choice;
}

}  // namespace tessera
