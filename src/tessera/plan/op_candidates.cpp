#include "tessera/plan/op_candidates.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera::detail {
namespace {

/// Finds the strategies of one mesh dim of more than one rank.
class MeshDimCandidates {
 public:
  MeshDimCandidates(const OpRule& rule, const std::vector<OpInput>& inputs,
                    const std::vector<std::optional<Layout>>& fixed, std::size_t mesh_dim)
      : rule_(rule), inputs_(inputs), fixed_(fixed), mesh_dim_(mesh_dim) {}

  std::vector<Strategy> find() const {
    std::vector<Strategy> all = rule_.strategies();
    add_strided(all);
    std::erase_if(all, [this](const Strategy& strategy) {
      return !is_reachable(strategy) || is_needless(strategy);
    });
    const std::vector<Strategy> possible = all;
    std::erase_if(all, [this](const Strategy& strategy) { return !fits_fixed(strategy); });
    if (all.empty()) refuse(possible);
    return all;
  }

 private:
  const Placement& now(std::size_t input) const {
    return inputs_[input].layout.placements()[mesh_dim_];
  }
  const Placement* fixed(std::size_t output) const {
    if (output >= fixed_.size() || !fixed_[output]) return nullptr;
    return &fixed_[output]->placements()[mesh_dim_];
  }

  void add_strided(std::vector<Strategy>& all) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) add_strided(all, rule_.inputs()[i], now(i));
    for (std::size_t i = 0; i < fixed_.size(); ++i) {
      if (fixed(i) != nullptr) add_strided(all, rule_.outputs()[i], *fixed(i));
    }
  }

  void add_strided(std::vector<Strategy>& all, const OpRule::Dims& dims,
                   const Placement& placement) const {
    const auto* strided = std::get_if<StridedShard>(&placement);
    if (strided == nullptr) return;
    const std::int64_t factor = dims[static_cast<std::size_t>(strided->dim)];
    if (factor == OpRule::kBroadcast) return;
    const auto index = static_cast<std::size_t>(factor);
    if (rule_.factors()[index].kind == FactorKind::whole) return;
    Strategy strategy = rule_.shard_factor(index, strided->split_factor);
    if (std::find(all.begin(), all.end(), strategy) == all.end()) all.push_back(strategy);
  }

  /// Contributions to one reduction cannot become those to another.
  bool is_reachable(const Strategy& strategy) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Placement& target = strategy.inputs[i];
      if (is_partial(now(i)) && is_partial(target) && now(i) != target) return false;
    }
    return true;
  }

  /// Partial may pass through, but nobody is or wants to be: it would only put off work.
  bool is_needless(const Strategy& strategy) const {
    const auto wanted = std::find_if(strategy.inputs.begin(), strategy.inputs.end(), is_partial);
    if (strategy.factor || wanted == strategy.inputs.end()) return false;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (now(i) == *wanted) return false;
    }
    for (std::size_t i = 0; i < fixed_.size(); ++i) {
      if (fixed(i) != nullptr && *fixed(i) == *wanted) return false;
    }
    return true;
  }

  bool fits_fixed(const Strategy& strategy) const {
    for (std::size_t i = 0; i < strategy.outputs.size(); ++i) {
      if (fixed(i) != nullptr && *fixed(i) != strategy.outputs[i]) return false;
    }
    return true;
  }

  [[noreturn]] void refuse(const std::vector<Strategy>& possible) const {
    std::vector<std::string> wanted;
    for (std::size_t i = 0; i < fixed_.size(); ++i) {
      if (fixed(i) != nullptr) wanted.push_back(concat("output ", i, " as ", *fixed(i)));
    }
    throw_invalid_argument(
        concat("choose_layouts: along mesh dim ",
               inputs_.front().layout.mesh().dim_label(static_cast<std::int64_t>(mesh_dim_)),
               " the caller wants ", joined(wanted), " of ", rule_,
               "; from the present inputs it can be had as: ", joined(possible, " | "),
               "; redistribute the tensor that is written to one of these first"));
  }

  const OpRule& rule_;
  const std::vector<OpInput>& inputs_;
  const std::vector<std::optional<Layout>>& fixed_;
  std::size_t mesh_dim_;
};

/// The order of a layout's cuts as one permutation; nothing when it is left to right.
std::vector<std::int64_t> order_of(const Layout& layout) {
  std::vector<std::int64_t> order;
  bool left_to_right = true;
  for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
    const auto first = order.size();
    for (const auto& split : layout.splits(dim)) order.push_back(split.mesh_dim);
    left_to_right &=
        std::is_sorted(order.begin() + static_cast<std::ptrdiff_t>(first), order.end());
  }
  if (left_to_right) return {};
  for (std::int64_t dim = 0; dim < layout.mesh().ndim(); ++dim) {
    if (std::find(order.begin(), order.end(), dim) == order.end()) order.push_back(dim);
  }
  return order;
}

}  // namespace

std::int64_t changed_inputs(const Strategy& strategy, const std::vector<OpInput>& inputs,
                            std::size_t mesh_dim) {
  std::int64_t changed = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Placement& now = inputs[i].layout.placements()[mesh_dim];
    changed += now == strategy.inputs[i] ? 0 : 1;
  }
  return changed;
}

std::int64_t partial_outputs(const Strategy& strategy) {
  return std::count_if(strategy.outputs.begin(), strategy.outputs.end(), is_partial);
}

std::size_t closest_strategy(const std::vector<Strategy>& strategies,
                             const std::vector<OpInput>& inputs, std::size_t mesh_dim) {
  const auto distance = [&](const Strategy& strategy) {
    return std::pair(changed_inputs(strategy, inputs, mesh_dim), partial_outputs(strategy));
  };
  const auto closest = std::min_element(
      strategies.begin(), strategies.end(),
      [&](const Strategy& a, const Strategy& b) { return distance(a) < distance(b); });
  return static_cast<std::size_t>(closest - strategies.begin());
}

std::vector<std::vector<Strategy>> candidate_strategies(
    const OpRule& rule, const std::vector<OpInput>& inputs,
    const std::vector<std::optional<Layout>>& fixed_outputs) {
  const MeshShape& mesh = inputs.front().layout.mesh();
  std::vector<std::vector<Strategy>> all;
  for (std::size_t mesh_dim = 0; mesh_dim < mesh.sizes().size(); ++mesh_dim) {
    if (mesh.sizes()[mesh_dim] == 1) {
      const auto strategies = rule.strategies();
      all.push_back({strategies[closest_strategy(strategies, inputs, mesh_dim)]});
    } else {
      all.push_back(MeshDimCandidates(rule, inputs, fixed_outputs, mesh_dim).find());
    }
  }
  return all;
}

std::vector<std::vector<std::int64_t>> candidate_orders(
    const std::vector<OpInput>& inputs, const std::vector<std::optional<Layout>>& fixed_outputs) {
  std::vector<std::vector<std::int64_t>> orders{{}};
  const auto add = [&orders](const Layout& layout) {
    auto order = order_of(layout);
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) {
      orders.push_back(std::move(order));
    }
  };
  for (const auto& input : inputs) add(input.layout);
  for (const auto& fixed : fixed_outputs) {
    if (fixed) add(*fixed);
  }
  return orders;
}

}  // namespace tessera::detail
