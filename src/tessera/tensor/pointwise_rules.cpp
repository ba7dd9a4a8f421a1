#include <algorithm>
#include <string>
#include <unordered_map>

#include "tessera/base/concat.h"
#include "tessera/base/error.h"
#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

using Groups = std::vector<std::vector<std::int64_t>>;

/// In which inputs an op is linear, see `OpRule`, when all of them are tensors.
const std::unordered_map<std::string_view, Groups>& linear_ops() {
  static const std::unordered_map<std::string_view, Groups> table = {
      {"add", {{0, 1}}},
      {"sub", {{0, 1}}},
      {"rsub", {{0, 1}}},
      {"mul", {{0}, {1}}},
      {"multiply", {{0}, {1}}},
      {"div", {{0}}},
      {"true_divide", {{0}}},
      {"neg", {{0}}},
      {"negative", {{0}}},
      {"positive", {{0}}},
      {"clone", {{0}}},
      {"copy", {{0, 1}}},
      {"_to_copy", {{0}}},
      {"alias", {{0}}},
      {"detach", {{0}}},
      {"view_as_real", {{0}}},
      {"lerp", {{0, 1}}},
      {"addcmul", {{0, 1}, {0, 2}}},
      {"addcdiv", {{0, 1}}},
      {"where", {{1, 2}}},
      {"threshold_backward", {{0}}},
      {"_conj", {{0}}},
      {"conj_physical", {{0}}},
      {"zero", {{0}}},
      {"tanh_backward", {{0}}},
      {"sigmoid_backward", {{0}}},
      {"gelu_backward", {{0}}},
      {"silu_backward", {{0}}},
      {"native_dropout_backward", {{0}}},
      {"deg2rad", {{0}}},
      {"rad2deg", {{0}}},
      {"contiguous", {{0}}},
      {"masked_fill", {{0, 2}}},
      {"complex", {{0, 1}}},
      {"hardshrink_backward", {{0}}},
      {"softshrink_backward", {{0}}},
  };
  return table;
}

bool is_number(at::ScalarType dtype) {
  return dtype != at::kBool && (at::isFloatingType(dtype) || at::isComplexType(dtype) ||
                                at::isIntegralType(dtype, false));
}

/// The groups that hold for this call: a sum may pass only through numbers, and addition of a
/// constant is not linear.
Groups linear_groups(const OpCall& call) {
  const auto& traits = call.traits();
  const auto found = linear_ops().find(traits.base_name);
  if (found == linear_ops().end()) return {};
  const auto count = static_cast<std::int64_t>(call.inputs().size());
  for (const auto& input : call.inputs()) {
    if (!is_number(input.tensor.scalar_type()) && traits.base_name != "where" &&
        traits.base_name != "masked_fill") {
      return {};
    }
  }
  if (call.has_argument("rounding_mode") && !call.argument("rounding_mode").isNone()) return {};
  if (call.has_argument("dtype") && call.argument("dtype").isInt() &&
      !(at::isFloatingType(call.argument("dtype").toScalarType()) &&
        at::isFloatingType(call.inputs()[0].tensor.scalar_type()))) {
    return {};
  }
  // Nor is a copy that truncates.
  if (traits.base_name == "copy" && !at::isFloatingType(call.inputs()[0].tensor.scalar_type()) &&
      call.inputs()[0].tensor.scalar_type() != call.inputs().back().tensor.scalar_type()) {
    return {};
  }
  Groups groups;
  for (const auto& group : found->second) {
    const bool is_whole =
        std::all_of(group.begin(), group.end(), [&](std::int64_t input) { return input < count; });
    if (is_whole) groups.push_back(group);
  }
  return groups;
}

/// How the result lies in memory. libtorch decides by the strides of all inputs, and by the memory
/// format if it is given one.
GlobalStrides result_strides(const OpCall& call) {
  const bool has_format =
      call.has_argument("memory_format") && !call.argument("memory_format").isNone();
  const bool are_contiguous =
      std::all_of(call.inputs().begin(), call.inputs().end(),
                  [](const CallTensor& input) { return input.tensor.is_contiguous(); });
  if ((are_contiguous && !has_format) || call.traits().has_written) return {};
  const auto results = run_on_meta(call);
  if (!results || results->empty()) return {};
  const auto& result = results->front();
  return result.is_non_overlapping_and_dense() ? strides_on_meta(result) : GlobalStrides();
}

std::size_t tensor_count(const OpCall& call) { return call.traits().returns.size(); }

}  // namespace

std::optional<OpDecision> decide_pointwise(const OpCall& call) {
  try {
    const OpRule rule = pointwise_rule(call.traits().base_name, call.shapes(), linear_groups(call));
    auto decision = decide(call, rule);
    if (!decision) return std::nullopt;
    const Layout output = decision->outputs.front();
    decision->outputs.assign(tensor_count(call), output);
    decision->strides.assign(tensor_count(call), result_strides(call));
    return decision;
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

void add_pointwise_rules(RuleTable& table) {
  // Element by element, though libtorch does not mark them so.
  for (const auto* name : {"copy",
                           "_to_copy",
                           "clone",
                           "zero",
                           "fill",
                           "masked_fill",
                           "where",
                           "_conj",
                           "conj_physical",
                           "threshold_backward",
                           "tanh_backward",
                           "sigmoid_backward",
                           "gelu_backward",
                           "silu_backward",
                           "native_dropout_backward",
                           "nan_to_num",
                           "hardtanh",
                           "hardtanh_backward",
                           "leaky_relu_backward",
                           "elu_backward",
                           "softplus_backward",
                           "hardswish_backward",
                           "hardsigmoid_backward",
                           "logit_backward",
                           "log_sigmoid_forward",
                           "log_sigmoid_backward",
                           "_prelu_kernel",
                           "_prelu_kernel_backward",
                           "mish_backward",
                           "_neg_view",
                           "resolve_conj",
                           "resolve_neg",
                           "rsub",
                           "complex",
                           "polar",
                           "floor_divide",
                           "hardswish",
                           "hardshrink_backward",
                           "softshrink_backward",
                           "isfinite",
                           "isinf",
                           "isnan"}) {
    table.emplace(name, &decide_pointwise);
  }
}

}  // namespace tessera::detail
