#include "tessera/base/error.h"
#include "tessera/plan/op_choice.h"
#include "tessera/tensor/op_call.h"

namespace tessera::detail {
namespace {

/// The layout of the argument that is written and returned as result `index`.
std::optional<Layout> written_layout(const OpCall& call, std::size_t index) {
  const auto& returns = call.traits().returns;
  if (index >= returns.size() || !returns[index].argument.has_value()) return std::nullopt;
  for (const auto* list : {&call.inputs(), &call.outs()}) {
    for (const auto& entry : *list) {
      if (entry.argument == *returns[index].argument) return entry.meta->layout();
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<OpDecision> decide(const OpCall& call, const OpRule& rule,
                                 const std::vector<FactorSize>& sizes) {
  std::vector<OpInput> inputs;
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    inputs.push_back(
        {.layout = call.layout(i),
         .element_size = static_cast<std::int64_t>(call.inputs()[i].tensor.element_size())});
  }
  ChooseOptions options{.fixed_outputs = {}, .sizes = sizes};
  if (call.traits().has_written) {
    for (std::size_t i = 0; i < rule.outputs().size(); ++i) {
      options.fixed_outputs.push_back(written_layout(call, i));
    }
  }
  try {
    OpChoice choice = choose_layouts(rule, inputs, options);
    OpDecision decision;
    decision.inputs = std::move(choice.inputs);
    decision.outputs = std::move(choice.outputs);
    decision.mean_count = choice.mean_count;
    return decision;
  } catch (const InvalidArgument&) {
    // What is wrong with the call, if anything, the op itself says best.
    return std::nullopt;
  }
}

}  // namespace tessera::detail
