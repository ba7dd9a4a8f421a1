#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include "tessera/layout/layout.h"
#include "tessera/plan/op_rule.h"
#include "tessera/tensor/dtensor_meta.h"

namespace c10 {
class OperatorHandle;
}

namespace tessera::detail {

class OpCall;

/// How one call of an op is carried out on local parts.
struct OpDecision {
  /// The layout that every input must be brought into, in the order of `OpCall::inputs`.
  std::vector<Layout> inputs;
  /// The layout of every returned tensor, the elements of lists one by one. Entries for written
  /// arguments are those arguments' own layouts.
  std::vector<Layout> outputs;
  /// One entry per output, or none when all are contiguous.
  std::vector<GlobalStrides> strides;
  /// Arguments that have other values on local parts: sizes of views, for example.
  std::vector<std::pair<std::size_t, c10::IValue>> replaced;
  /// Computes the local results from the local arguments on the stack; the op itself when empty.
  std::function<void(const c10::OperatorHandle& op, torch::jit::Stack& stack)> run;
  /// Set where a mean is cut over ranks: what each rank must divide its local sum by.
  std::optional<std::int64_t> mean_count;
};

/// Decides how an op is carried out; nothing when no rule fits the call, and the fallback must serve.
/// Pure: depends on the global properties of the arguments, so all ranks decide alike.
using RuleFunction = std::optional<OpDecision> (*)(const OpCall& call);

/// Does an op on DTensors itself, leaving the results on the stack.
using KernelFunction = void (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// Rules and kernels by the ops' base names.
using RuleTable = std::unordered_map<std::string_view, RuleFunction>;
using KernelTable = std::unordered_map<std::string_view, KernelFunction>;

/// Returns the decision for a rule in index notation: the layouts that move the fewest bytes.
///
/// Written arguments keep their layout. Nothing when the rule has no way of doing that, and when the
/// rule does not fit the inputs.
[[nodiscard]] std::optional<OpDecision> decide(const OpCall& call, const OpRule& rule,
                                               const std::vector<FactorSize>& sizes = {});

}  // namespace tessera::detail
