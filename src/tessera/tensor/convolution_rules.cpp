#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/zeros.h>

#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

/// The dims of a convolution: samples `n` and, unless there are groups, the channels `o` that come
/// out may be cut; everything else is whole.
struct ConvolutionDims {
  Dims input;
  Dims weight;
  Dims output;
  std::vector<std::string> whole;
};

ConvolutionDims convolution_dims(const OpCall& call, std::int64_t ndim) {
  ConvolutionDims dims{Dims("x", ndim), Dims("w", ndim), Dims("y", ndim), {}};
  dims.input[0] = "n";
  dims.output[0] = "n";
  const bool is_cut = call.integer("groups") == 1;
  const std::int64_t channels_out = call.argument("transposed").toBool() ? 1 : 0;
  if (is_cut) {
    dims.output[1] = "o";
    dims.weight[channels_out] = "o";
  }
  for (std::int64_t d = 0; d < ndim; ++d) {
    if (!is_cut || d != channels_out) dims.whole.push_back(dims.weight[d]);
    if (d > 0) dims.whole.push_back(dims.input[d]);
    if (d > 1 || (d == 1 && !is_cut)) dims.whole.push_back(dims.output[d]);
  }
  return dims;
}

std::optional<OpDecision> decide_convolution(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results || call.ndim(0) < 3 || call.ndim(0) != call.ndim(1)) return std::nullopt;
  // Of nothing at all, what the op says of the whole it must not say of a part.
  if (results->front().numel() == 0) return std::nullopt;
  auto dims = convolution_dims(call, call.ndim(0));
  std::vector<FactorSize> sizes;
  for (std::int64_t d = 1; d < call.ndim(0); ++d) {
    if (dims.output[d] != "o") sizes.push_back({dims.output[d], results->front().size(d)});
  }
  std::vector<std::string> inputs = {dims.input.text(), dims.weight.text()};
  if (call.inputs().size() == 3) {
    const bool is_cut = dims.output[1] == "o";
    inputs.emplace_back(is_cut ? "(o)" : "(bias)");
    if (!is_cut) dims.whole.emplace_back("bias");
  }
  return skipping_empty(
      decide(call,
             OpRule::parse(concat("convolution: ", joined(inputs), " -> ", dims.output.text(),
                                  " | ", joined(dims.whole, " "), ": whole")),
             sizes),
      call, *results);
}

/// What parts without samples or channels contribute: zeros, where a gradient was asked for.
void give_zeros(OpDecision& decision, const OpCall& call, std::int64_t position) {
  std::vector<Shape> shapes;
  for (const auto& output : decision.outputs) shapes.push_back(output.local_shape(position));
  const auto asked = call.argument("output_mask").toBoolList();
  const std::vector<bool> mask(asked.begin(), asked.end());
  decision.run = [shapes, mask](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const std::size_t count = op.schema().arguments().size();
    const auto options = torch::jit::peek(stack, 0, count).toTensor().options();
    torch::jit::drop(stack, count);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      torch::jit::push(stack, mask[i] ? at::zeros(shapes[i], options) : at::Tensor());
    }
  };
}

std::optional<OpDecision> decide_convolution_backward(const OpCall& call) {
  if (call.inputs().size() != 3 || call.ndim(0) < 3) return std::nullopt;
  if (call.inputs()[0].tensor.numel() == 0) return std::nullopt;
  auto dims = convolution_dims(call, call.ndim(0));
  const bool is_cut = dims.output[1] == "o";
  const std::string bias = is_cut ? "o" : "bias";
  if (!is_cut) dims.whole.push_back(bias);
  const auto sizes =
      is_cut ? std::vector<FactorSize>() : std::vector<FactorSize>{{bias, call.shape(0)[1]}};
  auto decision = decide(
      call,
      OpRule::parse(concat("convolution_backward: ", dims.output.text(), ", ", dims.input.text(),
                           ", ", dims.weight.text(), " -> ", dims.input.text(), ", ",
                           dims.weight.text(), ", (", bias, ") | ", joined(dims.whole, " "),
                           ": whole | n", is_cut ? " o" : "", ": sum")),
      sizes);
  const auto position = call.position();
  if (!decision || !position) return decision;
  const auto& bias_sizes = call.argument("bias_sizes");
  if (bias_sizes.isIntList() && !bias_sizes.toIntVector().empty()) {
    decision->replaced.emplace_back(call.index_of("bias_sizes"),
                                    decision->outputs[2].local_shape(*position));
  }
  if (decision->inputs[0].local_numel(*position) == 0) give_zeros(*decision, call, *position);
  return decision;
}

}  // namespace

void add_convolution_rules(RuleTable& table) {
  table.emplace("convolution", &decide_convolution);
  table.emplace("convolution_backward", &decide_convolution_backward);
}

}  // namespace tessera::detail
