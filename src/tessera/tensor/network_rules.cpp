#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>

#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// The numbers by which libtorch's kernels name reductions of a loss.
constexpr std::int64_t kNone = 0;
constexpr std::int64_t kMean = 1;
constexpr std::int64_t kSum = 2;

/// The dims of a layer norm's input: those that are normalised are whole.
struct NormDims {
  Dims input;
  Dims normalised;
  Dims statistics;
  std::string outer_names;
  std::string inner_names;
};

NormDims norm_dims(const OpCall& call, std::size_t input) {
  const auto count =
      static_cast<std::int64_t>(call.argument("normalized_shape").toIntVector().size());
  NormDims dims;
  dims.input = Dims("a", call.ndim(input));
  std::vector<std::string> outer;
  for (std::int64_t dim = 0; dim < dims.input.size(); ++dim) {
    const bool is_inner = dim >= dims.input.size() - count;
    if (is_inner) dims.normalised.push_back(dims.input[dim]);
    if (!is_inner) outer.push_back(dims.input[dim]);
    dims.statistics.push_back(is_inner ? "1" : dims.input[dim]);
  }
  dims.outer_names = joined(outer, " ");
  dims.inner_names = joined(dims.normalised.names(), " ");
  return dims;
}

std::optional<OpDecision> decide_layer_norm(const OpCall& call) {
  const NormDims dims = norm_dims(call, 0);
  if (dims.normalised.size() > call.ndim(0)) return std::nullopt;
  std::vector<std::string> inputs = {dims.input.text()};
  inputs.resize(call.inputs().size(), dims.normalised.text());
  return decide(
      call, OpRule::parse(concat("native_layer_norm: ", joined(inputs), " -> ", dims.input.text(),
                                 ", ", dims.statistics.text(), ", ", dims.statistics.text(), " | ",
                                 dims.inner_names, ": whole")));
}

/// The gradients of weight and bias are sums over everything that is not normalised.
std::optional<OpDecision> decide_layer_norm_backward(const OpCall& call) {
  const NormDims dims = norm_dims(call, 0);
  if (call.inputs().size() < 4 || dims.normalised.size() > call.ndim(0)) return std::nullopt;
  std::vector<std::string> inputs = {dims.input.text(), dims.input.text(), dims.statistics.text(),
                                     dims.statistics.text()};
  inputs.resize(call.inputs().size(), dims.normalised.text());
  const std::string summed =
      dims.outer_names.empty() ? "" : concat(" | ", dims.outer_names, ": sum");
  return decide(call, OpRule::parse(concat("native_layer_norm_backward: ", joined(inputs), " -> ",
                                           dims.input.text(), ", ", dims.normalised.text(), ", ",
                                           dims.normalised.text(), " | ", dims.inner_names,
                                           ": whole", summed)));
}

/// Group norm: samples pass, all else is whole. The number of samples is an argument too.
std::optional<OpDecision> decide_group_norm(const OpCall& call) {
  if (call.ndim(0) < 2) return std::nullopt;
  Dims input("a", call.ndim(0));
  std::vector<std::string> whole(input.names().begin() + 1, input.names().end());
  whole.emplace_back("g");
  std::vector<std::string> inputs = {input.text()};
  inputs.resize(call.inputs().size(), concat("(", input[1], ")"));
  auto decision =
      decide(call,
             OpRule::parse(concat("native_group_norm: ", joined(inputs), " -> ", input.text(),
                                  ", (a0 g), (a0 g) | ", joined(whole, " "), ": whole")),
             {{"g", call.integer("group")}});
  if (!decision) return std::nullopt;
  decision->replaced.emplace_back(call.index_of("N"),
                                  decision->inputs[0].local_size(0, call.position().value_or(0)));
  return decision;
}

/// Its gradients: those of weight and bias are sums over samples.
std::optional<OpDecision> decide_group_norm_backward(const OpCall& call) {
  if (call.ndim(0) < 2 || call.inputs().size() < 4) return std::nullopt;
  Dims input("a", call.ndim(0));
  std::vector<std::string> whole(input.names().begin() + 1, input.names().end());
  whole.emplace_back("g");
  const std::string channels = concat("(", input[1], ")");
  std::vector<std::string> inputs = {input.text(), input.text(), "(a0 g)", "(a0 g)"};
  inputs.resize(call.inputs().size(), channels);
  auto decision =
      decide(call, OpRule::parse(concat("native_group_norm_backward: ", joined(inputs), " -> ",
                                        input.text(), ", ", channels, ", ", channels, " | ",
                                        joined(whole, " "), ": whole | a0: sum")));
  if (!decision) return std::nullopt;
  decision->replaced.emplace_back(call.index_of("N"),
                                  decision->inputs[0].local_size(0, call.position().value_or(0)));
  return decision;
}

/// Losses of two tensors of the same shape: element by element, summed, or averaged.
std::optional<OpDecision> decide_loss(const OpCall& call) {
  const std::int64_t reduction = call.integer("reduction");
  if (reduction == kNone) return decide_pointwise(call);
  if (call.inputs().size() != 2 || call.shape(0) != call.shape(1)) return std::nullopt;
  const Dims dims("a", call.ndim(0));
  const std::string reduced = dims.size() == 0 ? ""
                                               : concat(" | ", joined(dims.names(), " "),
                                                        reduction == kSum ? ": sum" : ": mean");
  auto decision = decide(call, OpRule::parse(concat(call.traits().base_name, ": ", dims.text(),
                                                    ", ", dims.text(), " -> ()", reduced)));
  if (!decision || !decision->mean_count) return decision;
  const std::int64_t count = *decision->mean_count;
  decision->replaced.emplace_back(call.index_of("reduction"), kSum);
  decision->run = [count](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    op.callBoxed(stack);
    auto& result = stack.back();
    result = result.toTensor().div(static_cast<double>(count));
  };
  return decision;
}

/// The gradient of such a loss. A mean divides by the number of all elements, not of the part's.
std::optional<OpDecision> decide_loss_backward(const OpCall& call) {
  const std::int64_t reduction = call.integer("reduction");
  auto decision = decide_pointwise(call);
  if (!decision || reduction != kMean) return decision;
  const std::int64_t count = call.inputs()[1].tensor.numel();
  decision->replaced.emplace_back(call.index_of("reduction"), kSum);
  decision->run = [count](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    op.callBoxed(stack);
    auto& result = stack.back();
    result = result.toTensor().div(static_cast<double>(count));
  };
  return decision;
}

/// nll_loss without reduction, or summed, over cut samples; classes are whole. A mean needs the
/// total weight of all samples and is left to the fallback.
std::optional<OpDecision> decide_nll(const OpCall& call) {
  const std::int64_t reduction = call.integer("reduction");
  if (reduction == kMean || call.ndim(0) != 2) return std::nullopt;
  std::vector<std::string> inputs = {"(n c)", "(n)"};
  if (call.inputs().size() == 3) inputs.emplace_back("(c)");
  return decide(call, OpRule::parse(concat("nll_loss_forward: ", joined(inputs), " -> ",
                                           reduction == kNone ? "(n)" : "()", ", () | c: whole",
                                           " | n: sum")));
}

std::optional<OpDecision> decide_nll_backward(const OpCall& call) {
  const std::int64_t reduction = call.integer("reduction");
  if (call.ndim(1) != 2) return std::nullopt;
  std::vector<std::string> inputs = {reduction == kNone ? "(n)" : "()", "(n c)", "(n)"};
  if (call.inputs().size() == 5) inputs.emplace_back("(c)");
  inputs.emplace_back("()");
  return decide(
      call, OpRule::parse(concat("nll_loss_backward: ", joined(inputs), " -> (n c) | c: whole")));
}

/// Kernels for images refuse parts without samples or channels: there is nothing to compute then.
std::optional<OpDecision> skipping_empty(std::optional<OpDecision> decision, const OpCall& call,
                                         const std::vector<at::Tensor>& results) {
  const auto position = call.position();
  if (!decision || !position || decision->outputs.size() != results.size()) return decision;
  std::vector<std::pair<Shape, at::ScalarType>> parts;
  for (std::size_t i = 0; i < results.size(); ++i) {
    parts.emplace_back(decision->outputs[i].local_shape(*position), results[i].scalar_type());
    // An empty whole is for the op to judge.
    if (results[i].numel() == 0 || decision->outputs[i].local_numel(*position) > 0) return decision;
  }
  decision->run = [parts](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const std::size_t count = op.schema().arguments().size();
    const auto options = torch::jit::peek(stack, 0, count).toTensor().options();
    torch::jit::drop(stack, count);
    for (const auto& [shape, dtype] : parts) {
      torch::jit::push(stack, at::empty(shape, options.dtype(dtype)));
    }
  };
  return decision;
}

/// Pooling and resampling: samples and channels pass, everything spatial is whole.
std::optional<OpDecision> decide_spatial(const OpCall& call, std::int64_t spatial) {
  const auto results = run_on_meta(call);
  if (!results) return std::nullopt;
  const std::int64_t outer = call.ndim(0) - spatial;
  if (outer < 1) return std::nullopt;
  const Dims names("a", outer);
  std::vector<std::string> whole;
  std::vector<FactorSize> sizes;
  const auto text_of = [&](const std::string& stem, const at::Tensor& tensor, bool is_output) {
    Dims dims = names;
    for (std::int64_t d = 0; d < spatial; ++d) {
      dims.push_back(concat(stem, d));
      whole.push_back(dims[outer + d]);
      if (is_output) sizes.push_back({dims[outer + d], tensor.size(outer + d)});
    }
    return dims.text();
  };
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    if (call.ndim(i) != call.ndim(0)) return std::nullopt;
    inputs.push_back(text_of(concat("s", i, "x"), call.inputs()[i].tensor, false));
  }
  std::vector<std::string> outputs;
  for (std::size_t i = 0; i < results->size(); ++i) {
    outputs.push_back(text_of(concat("t", i, "x"), (*results)[i], true));
  }
  return skipping_empty(
      decide(call,
             OpRule::parse(concat(call.traits().base_name, ": ", joined(inputs), " -> ",
                                  joined(outputs), " | ", joined(whole, " "), ": whole")),
             sizes),
      call, *results);
}

std::optional<OpDecision> decide_spatial_1d(const OpCall& call) { return decide_spatial(call, 1); }
std::optional<OpDecision> decide_spatial_2d(const OpCall& call) { return decide_spatial(call, 2); }
std::optional<OpDecision> decide_spatial_3d(const OpCall& call) { return decide_spatial(call, 3); }

/// A convolution over cut samples; weights are whole.
std::optional<OpDecision> decide_convolution(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results || call.ndim(0) < 3 || call.ndim(0) != call.ndim(1)) return std::nullopt;
  const std::int64_t ndim = call.ndim(0);
  Dims input("x", ndim);
  input[0] = "n";
  const Dims weight("w", ndim);
  Dims output("y", ndim);
  output[0] = "n";
  std::vector<std::string> whole;
  std::vector<FactorSize> sizes;
  for (std::int64_t d = 0; d < ndim; ++d) {
    whole.push_back(weight[d]);
    if (d == 0) continue;
    whole.push_back(input[d]);
    whole.push_back(output[d]);
    sizes.push_back({output[d], results->front().size(d)});
  }
  std::vector<std::string> inputs = {input.text(), weight.text()};
  if (call.inputs().size() == 3) {
    inputs.emplace_back("(bias)");
    whole.emplace_back("bias");
  }
  return skipping_empty(
      decide(call,
             OpRule::parse(concat("convolution: ", joined(inputs), " -> ", output.text(), " | ",
                                  joined(whole, " "), ": whole")),
             sizes),
      call, *results);
}

std::optional<OpDecision> decide_convolution_backward(const OpCall& call) {
  if (call.inputs().size() != 3 || call.ndim(0) < 3) return std::nullopt;
  const std::int64_t ndim = call.ndim(0);
  Dims gradient("y", ndim);
  gradient[0] = "n";
  Dims input("x", ndim);
  input[0] = "n";
  const Dims weight("w", ndim);
  std::vector<std::string> whole;
  for (std::int64_t d = 0; d < ndim; ++d) {
    whole.push_back(weight[d]);
    if (d == 0) continue;
    whole.push_back(gradient[d]);
    whole.push_back(input[d]);
  }
  whole.emplace_back("bias");
  return decide(call,
                OpRule::parse(concat("convolution_backward: ", gradient.text(), ", ", input.text(),
                                     ", ", weight.text(), " -> ", input.text(), ", ", weight.text(),
                                     ", (bias) | ", joined(whole, " "), ": whole | n: sum")),
                {{"bias", gradient.size() > 1 ? call.shape(0)[1] : 1}});
}

/// Attention: samples and heads pass, positions and features are whole. The op has no kernel for
/// tensors without data, so shapes and strides of its results are stated here: heads lie behind
/// positions in memory.
std::optional<OpDecision> decide_attention(const OpCall& call) {
  if (call.ndim(0) != 4 || call.inputs().size() != 3) return std::nullopt;
  if (call.shape(0)[1] != call.shape(1)[1]) return std::nullopt;
  auto decision = decide(call, OpRule::parse("attention: (b h q d), (b h k d), (b h k e) -> "
                                             "(b h q e), (b h q) | q k d e: whole"));
  if (!decision) return std::nullopt;
  const auto& query = call.inputs()[0].tensor;
  const std::int64_t heads = query.size(1);
  const std::int64_t positions = query.size(2);
  const std::int64_t features = call.inputs()[2].tensor.size(3);
  decision->strides = {
      {.strides = {positions * heads * features, features, heads * features, 1}},
      {.strides = {positions * heads, 1, heads}},
  };
  const auto options = query.options().device(at::kMeta);
  const auto sums =
      c10::isReducedFloatingType(query.scalar_type()) ? at::kFloat : query.scalar_type();
  return skipping_empty(std::move(decision), call,
                        {at::empty({query.size(0), heads, positions, features}, options),
                         at::empty({query.size(0), heads, positions}, options.dtype(sums))});
}

std::optional<OpDecision> decide_attention_backward(const OpCall& call) {
  if (call.inputs().size() != 6 || call.ndim(0) != 4) return std::nullopt;
  if (call.shape(1)[1] != call.shape(2)[1]) return std::nullopt;
  const std::vector<at::Tensor> results = {call.inputs()[1].tensor, call.inputs()[2].tensor,
                                           call.inputs()[3].tensor};
  return skipping_empty(
      decide(call, OpRule::parse("attention_backward: (b h q e), (b h q d), (b h k d), (b h k e), "
                                 "(b h q e), (b h q) -> (b h q d), (b h k d), (b h k e) "
                                 "| q k d e: whole")),
      call, results);
}

}  // namespace

void add_network_rules(RuleTable& table) {
  table.emplace("native_layer_norm", &decide_layer_norm);
  table.emplace("native_layer_norm_backward", &decide_layer_norm_backward);
  table.emplace("native_group_norm", &decide_group_norm);
  table.emplace("native_group_norm_backward", &decide_group_norm_backward);
  for (const auto* name : {"mse_loss", "smooth_l1_loss", "huber_loss"}) {
    table.emplace(name, &decide_loss);
  }
  for (const auto* name : {"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward"}) {
    table.emplace(name, &decide_loss_backward);
  }
  table.emplace("nll_loss_forward", &decide_nll);
  table.emplace("nll_loss_backward", &decide_nll_backward);
  table.emplace("convolution", &decide_convolution);
  table.emplace("convolution_backward", &decide_convolution_backward);
  table.emplace("_scaled_dot_product_flash_attention_for_cpu", &decide_attention);
  table.emplace("_scaled_dot_product_flash_attention_for_cpu_backward", &decide_attention_backward);
  for (const auto* name : {"max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d",
                           "adaptive_max_pool2d", "upsample_nearest2d", "upsample_bilinear2d"}) {
    table.emplace(name, &decide_spatial_2d);
  }
  for (const auto* name : {"upsample_nearest1d", "upsample_linear1d"}) {
    table.emplace(name, &decide_spatial_1d);
  }
  for (const auto* name : {"max_pool3d_with_indices", "avg_pool3d", "_adaptive_avg_pool3d",
                           "upsample_nearest3d", "upsample_trilinear3d"}) {
    table.emplace(name, &decide_spatial_3d);
  }
}

}  // namespace tessera::detail
