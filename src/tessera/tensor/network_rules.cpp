#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>

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

/// Losses of tensors of the same shape: element by element, summed, or averaged.
std::optional<OpDecision> decide_loss(const OpCall& call) {
  const std::int64_t reduction = call.integer("reduction");
  if (reduction == kNone) return decide_pointwise(call);
  for (const auto& shape : call.shapes()) {
    if (shape != call.shape(0)) return std::nullopt;
  }
  const Dims dims("a", call.ndim(0));
  const std::string reduced = dims.size() == 0 ? ""
                                               : concat(" | ", joined(dims.names(), " "),
                                                        reduction == kSum ? ": sum" : ": mean");
  const std::vector<std::string> inputs(call.inputs().size(), dims.text());
  auto decision = decide(call, OpRule::parse(concat(call.traits().base_name, ": ", joined(inputs),
                                                    " -> ()", reduced)));
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

/// The dims of scores and classes: [n, c] and [n], or those of pictures. Nothing for others.
struct ClassDims {
  std::string scores;
  std::string classes;
  /// All but the classes.
  std::string samples;
};

std::optional<ClassDims> class_dims(std::int64_t ndim) {
  if (ndim == 2) return ClassDims{"(n c)", "(n)", "n"};
  if (ndim == 4) return ClassDims{"(n c h w)", "(n h w)", "n h w"};
  return std::nullopt;
}

/// nll_loss without reduction, or summed, over cut samples; classes are whole. A mean needs the
/// total weight of all samples: here they are whole too, and where they are cut see `run_nll`.
std::optional<OpDecision> decide_nll(const OpCall& call) {
  const std::int64_t reduction = call.integer("reduction");
  const auto dims = class_dims(call.ndim(0));
  if (!dims) return std::nullopt;
  std::vector<std::string> inputs = {dims->scores, dims->classes};
  if (call.inputs().size() == 3) inputs.emplace_back("(c)");
  return decide(
      call, OpRule::parse(concat(call.traits().base_name, ": ", joined(inputs), " -> ",
                                 reduction == kNone ? dims->classes : "()", ", () | c: whole | ",
                                 dims->samples, reduction == kMean ? ": whole" : ": sum")));
}

std::optional<OpDecision> decide_nll_backward(const OpCall& call) {
  const std::int64_t reduction = call.integer("reduction");
  const auto dims = class_dims(call.ndim(1));
  if (!dims) return std::nullopt;
  std::vector<std::string> inputs = {reduction == kNone ? dims->classes : "()", dims->scores,
                                     dims->classes};
  if (call.inputs().size() == 5) inputs.emplace_back("(c)");
  inputs.emplace_back("()");
  return decide(call, OpRule::parse(concat(call.traits().base_name, ": ", joined(inputs), " -> ",
                                           dims->scores, " | c: whole")));
}

/// Attention: samples and heads pass, positions and features are whole. The op has no kernel for
/// tensors without data, so shapes and strides of its results are stated here: heads lie behind
/// positions in memory.
std::optional<OpDecision> decide_attention(const OpCall& call) {
  if (call.ndim(0) != 4 || call.inputs().size() != 3) return std::nullopt;
  // Where several heads of queries share one of keys, all of them are whole.
  const bool is_grouped = call.shape(0)[1] != call.shape(1)[1];
  auto decision =
      decide(call, OpRule::parse(is_grouped ? "attention: (b g q d), (b h k d), (b h k e) -> "
                                              "(b g q e), (b g q) | g h q k d e: whole"
                                            : "attention: (b h q d), (b h k d), (b h k e) -> "
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
  const bool is_grouped = call.shape(1)[1] != call.shape(2)[1];
  const std::vector<at::Tensor> results = {call.inputs()[1].tensor, call.inputs()[2].tensor,
                                           call.inputs()[3].tensor};
  return skipping_empty(
      decide(call,
             OpRule::parse(is_grouped
                               ? "attention_backward: (b g q e), (b g q d), (b h k d), (b h k e), "
                                 "(b g q e), (b g q) -> (b g q d), (b h k d), (b h k e) "
                                 "| g h q k d e: whole"
                               : "attention_backward: (b h q e), (b h q d), (b h k d), (b h k e), "
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
  for (const auto* name : {"mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
                           "binary_cross_entropy_with_logits", "soft_margin_loss"}) {
    table.emplace(name, &decide_loss);
  }
  for (const auto* name : {"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward",
                           "binary_cross_entropy_backward", "soft_margin_loss_backward"}) {
    table.emplace(name, &decide_loss_backward);
  }
  for (const auto* name : {"nll_loss_forward", "nll_loss2d_forward"}) {
    table.emplace(name, &decide_nll);
  }
  for (const auto* name : {"nll_loss_backward", "nll_loss2d_backward"}) {
    table.emplace(name, &decide_nll_backward);
  }
  table.emplace("_scaled_dot_product_flash_attention_for_cpu", &decide_attention);
  table.emplace("_scaled_dot_product_flash_attention_for_cpu_backward", &decide_attention_backward);
}

}  // namespace tessera::detail
