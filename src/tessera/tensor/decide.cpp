#include "tessera/base/error.h"
#include "tessera/plan/op_choice.h"
#include "tessera/tensor/conversion.h"
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

/// The choice for these options; nothing when the rule has no way of doing it.
std::optional<OpDecision> choose(const OpRule& rule, const std::vector<OpInput>& inputs,
                                 const ChooseOptions& options) {
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

/// Whether what is written is worked on in a copy, which has the same shards before and after: then it
/// can be brought back into its own layout.
bool is_written_to_copies(const OpCall& call, const OpDecision& decision) {
  const auto& returns = call.traits().returns;
  for (std::size_t i = 0; i < returns.size(); ++i) {
    if (!returns[i].argument.has_value()) continue;
    for (std::size_t input = 0; input < call.inputs().size(); ++input) {
      if (call.inputs()[input].argument != *returns[i].argument) continue;
      const Layout& before = decision.inputs[input];
      const bool is_own = before == call.inputs()[input].meta->layout();
      if (is_own || gradient_layout(before) != gradient_layout(decision.outputs[i])) return false;
    }
  }
  return true;
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
  auto decision = choose(rule, inputs, options);
  if (decision || !call.traits().has_written || call.traits().has_out) return decision;
  // Adding a number to a sum that is still to be done, or writing along a dim that is cut.
  options.fixed_outputs.clear();
  decision = choose(rule, inputs, options);
  return decision && is_written_to_copies(call, *decision) ? decision : std::nullopt;
}

}  // namespace tessera::detail
