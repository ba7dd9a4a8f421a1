#include <map>

#include "tessera/base/error.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

/// Lists of tensors, worked on element by element: place i of every list makes one element-wise op.
/// Each place keeps the layout of its first tensor, which is the one that is written where any is;
/// the others follow it.
std::optional<OpDecision> decide_foreach(const OpCall& call) {
  OpDecision decision;
  std::map<std::size_t, Layout> leaders;
  for (const auto& input : call.inputs()) {
    if (!input.element.has_value()) {
      // A single tensor beside the lists: a learning rate, or a scale for all.
      if (input.meta != nullptr && input.tensor.numel() != 1) return std::nullopt;
      decision.inputs.push_back(call.replicated(input.tensor));
      continue;
    }
    const Layout own = input.meta != nullptr ? input.meta->layout() : call.replicated(input.tensor);
    const auto leader = leaders.find(*input.element);
    if (leader == leaders.end()) {
      if (input.meta == nullptr) return std::nullopt;
      // A sum that is still to be done passes through some ops only; here it is done first.
      const Layout& summed = leaders.emplace(*input.element, gradient_layout(own)).first->second;
      decision.inputs.push_back(summed);
    } else if (input.tensor.sizes() == at::IntArrayRef(leader->second.shape())) {
      decision.inputs.push_back(leader->second);
    } else if (input.tensor.numel() == 1) {
      decision.inputs.push_back(call.replicated(input.tensor));
    } else {
      return std::nullopt;
    }
  }
  for (const auto& [place, layout] : leaders) decision.outputs.push_back(layout);
  return decision;
}

bool reduces(std::string_view name) {
  return name == "_foreach_norm" || name == "_foreach_max" || name == "_foreach_powsum";
}

}  // namespace

std::optional<OpDecision> decide_lists(const OpCall& call) {
  return reduces(call.traits().base_name) ? std::nullopt : decide_foreach(call);
}

void add_foreach_rules(RuleTable& table) {
  for (const auto* name : {"_fused_adam", "_fused_adamw", "_fused_sgd", "_fused_adagrad",
                           "_amp_foreach_non_finite_check_and_unscale"}) {
    table.emplace(name, &decide_foreach);
  }
}

}  // namespace tessera::detail
