#include "tessera/tensor/conversion.h"
#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

/// zeros_like, full_like, ...: the values of the argument do not matter, so it never moves. The result
/// is placed like it, but whole where that is Partial.
std::optional<OpDecision> decide_like(const OpCall& call) {
  if (call.traits().has_written || call.inputs().size() != 1) return std::nullopt;
  const auto results = run_on_meta(call);
  if (!results) return std::nullopt;
  OpDecision decision;
  decision.inputs = {call.layout(0)};
  decision.outputs = {gradient_layout(call.layout(0))};
  decision.strides = {strides_on_meta(results->front())};
  return decision;
}

/// new_zeros, new_empty, ...: of the argument's own shape like it, otherwise replicated.
std::optional<OpDecision> decide_new(const OpCall& call) {
  if (call.traits().has_written || call.inputs().size() != 1) return std::nullopt;
  const auto results = run_on_meta(call);
  if (!results) return std::nullopt;
  const auto& result = results->front();
  const bool is_same = result.sizes() == call.inputs()[0].tensor.sizes();
  OpDecision decision;
  decision.inputs = {call.layout(0)};
  decision.outputs = {is_same ? gradient_layout(call.layout(0)) : call.replicated(result)};
  decision.strides = {strides_on_meta(result)};
  const Shape local = decision.outputs[0].local_shape(call.position().value_or(0));
  decision.replaced.emplace_back(call.index_of("size"), local);
  return decision;
}

}  // namespace

void add_factory_rules(RuleTable& table) {
  for (const auto* name : {"zeros_like", "ones_like", "empty_like", "full_like"}) {
    table.emplace(name, &decide_like);
  }
  for (const auto* name : {"new_zeros", "new_ones", "new_empty", "new_full"}) {
    table.emplace(name, &decide_new);
  }
}

}  // namespace tessera::detail
