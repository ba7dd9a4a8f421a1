#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>

#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {

/// Kernels for images and matrices refuse parts without samples: there is nothing to compute then.
std::optional<OpDecision> skipping_empty(std::optional<OpDecision> decision, const OpCall& call,
                                         const std::vector<at::Tensor>& results) {
  const auto position = call.position();
  if (!decision || !position || decision->outputs.size() != results.size()) return decision;
  std::vector<std::optional<std::pair<Shape, at::ScalarType>>> parts;
  for (std::size_t i = 0; i < results.size(); ++i) {
    parts.emplace_back();
    if (!results[i].defined()) continue;
    parts.back() = {decision->outputs[i].local_shape(*position), results[i].scalar_type()};
    // An empty whole is for the op to judge.
    if (results[i].numel() == 0 || decision->outputs[i].local_numel(*position) > 0) return decision;
  }
  decision->run = [parts](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const std::size_t count = op.schema().arguments().size();
    const auto options = torch::jit::peek(stack, 0, count).toTensor().options();
    torch::jit::drop(stack, count);
    for (const auto& part : parts) {
      torch::jit::push(stack,
                       part ? at::empty(part->first, options.dtype(part->second)) : at::Tensor());
    }
  };
  return decision;
}

/// Ops that treat the first `outer` dims as independent samples: those pass, everything behind them
/// is whole.
std::optional<OpDecision> decide_leading(const OpCall& call, std::int64_t outer) {
  if (outer < 1) return std::nullopt;
  const auto results = run_on_meta(call);
  if (!results) return std::nullopt;
  // Of nothing at all, what the op says of the whole it must not say of a part.
  const bool is_empty = std::any_of(results->begin(), results->end(), [](const at::Tensor& result) {
    return result.defined() && result.numel() == 0;
  });
  if (is_empty) return std::nullopt;
  std::vector<std::string> whole;
  std::vector<FactorSize> sizes;
  const auto text_of = [&](const std::string& stem, const at::Tensor& tensor, bool is_output) {
    Dims dims("a", outer);
    for (std::int64_t d = outer; d < tensor.dim(); ++d) {
      dims.push_back(concat(stem, d));
      whole.push_back(dims[d]);
      if (is_output) sizes.push_back({dims[d], tensor.size(d)});
    }
    return dims.text();
  };
  std::vector<std::string> inputs;
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    // Fewer dims may mean that something is broadcast.
    if (call.ndim(i) != call.ndim(0)) return std::nullopt;
    inputs.push_back(text_of(concat("s", i, "x"), call.inputs()[i].tensor, false));
  }
  std::vector<std::string> outputs;
  for (std::size_t i = 0; i < results->size(); ++i) {
    const auto& result = (*results)[i];
    // Gradients that nobody asked for are not there.
    if (result.defined() && result.dim() < outer) return std::nullopt;
    outputs.push_back(result.defined() ? text_of(concat("t", i, "x"), result, true)
                                       : Dims("a", outer).text());
  }
  auto decision = decide(call,
                         OpRule::parse(concat(call.traits().base_name, ": ", joined(inputs), " -> ",
                                              joined(outputs), whole.empty() ? "" : " | ",
                                              joined(whole, " "), whole.empty() ? "" : ": whole")),
                         sizes);
  if (!decision) return std::nullopt;
  if (call.has_argument("input_size")) {
    const Shape local = decision->outputs.front().local_shape(call.position().value_or(0));
    decision->replaced.emplace_back(call.index_of("input_size"), local);
  }
  return skipping_empty(std::move(decision), call, *results);
}

namespace {

/// Samples and channels of images pass; `inner` dims are a line, a picture or a volume.
template <std::int64_t inner>
std::optional<OpDecision> decide_image(const OpCall& call) {
  return decide_leading(call, call.ndim(0) - inner);
}

/// Samples pass, channels do not.
template <std::int64_t ndim>
std::optional<OpDecision> decide_samples(const OpCall& call) {
  return call.ndim(0) == ndim ? decide_leading(call, 1) : std::nullopt;
}

std::optional<OpDecision> decide_shuffled(const OpCall& call) {
  return call.ndim(0) < 2 ? std::nullopt : decide_leading(call, 1);
}

}  // namespace

void add_leading_rules(RuleTable& table) {
  for (const auto* name :
       {"upsample_nearest1d", "upsample_nearest1d_backward", "upsample_linear1d",
        "upsample_linear1d_backward", "_upsample_nearest_exact1d",
        "_upsample_nearest_exact1d_backward", "reflection_pad1d", "reflection_pad1d_backward",
        "replication_pad1d", "replication_pad1d_backward"}) {
    table.emplace(name, &decide_image<1>);
  }
  for (const auto* name : {"max_pool2d_with_indices",
                           "max_pool2d_with_indices_backward",
                           "avg_pool2d",
                           "avg_pool2d_backward",
                           "_adaptive_avg_pool2d",
                           "_adaptive_avg_pool2d_backward",
                           "adaptive_max_pool2d",
                           "adaptive_max_pool2d_backward",
                           "upsample_nearest2d",
                           "upsample_nearest2d_backward",
                           "upsample_bilinear2d",
                           "upsample_bilinear2d_backward",
                           "upsample_bicubic2d",
                           "upsample_bicubic2d_backward",
                           "_upsample_nearest_exact2d",
                           "_upsample_nearest_exact2d_backward",
                           "_upsample_bilinear2d_aa",
                           "_upsample_bilinear2d_aa_backward",
                           "_upsample_bicubic2d_aa",
                           "_upsample_bicubic2d_aa_backward",
                           "reflection_pad2d",
                           "reflection_pad2d_backward",
                           "replication_pad2d",
                           "replication_pad2d_backward",
                           "max_unpool2d"}) {
    table.emplace(name, &decide_image<2>);
  }
  for (const auto* name :
       {"max_pool3d_with_indices", "max_pool3d_with_indices_backward", "avg_pool3d",
        "avg_pool3d_backward", "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward",
        "adaptive_max_pool3d", "adaptive_max_pool3d_backward", "upsample_nearest3d",
        "upsample_nearest3d_backward", "upsample_trilinear3d", "upsample_trilinear3d_backward",
        "reflection_pad3d", "reflection_pad3d_backward", "replication_pad3d",
        "replication_pad3d_backward", "pixel_shuffle", "pixel_unshuffle", "max_unpool3d"}) {
    table.emplace(name, &decide_image<3>);
  }
  for (const auto* name : {"im2col", "grid_sampler_2d", "grid_sampler_2d_backward"}) {
    table.emplace(name, &decide_samples<4>);
  }
  for (const auto* name : {"grid_sampler_3d", "grid_sampler_3d_backward"}) {
    table.emplace(name, &decide_samples<5>);
  }
  table.emplace("col2im", &decide_samples<3>);
  table.emplace("channel_shuffle", &decide_shuffled);
}

}  // namespace tessera::detail
