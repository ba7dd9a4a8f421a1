#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "tessera/base/concat.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// Margin losses compare the scores of all classes of a sample: classes are whole, samples pass. One
// sample alone, without a dim of samples, is left to the fallback.

/// Sums over the samples of a part, divided by the number of all samples.
void divide_by(OpDecision& decision, const OpCall& call, std::int64_t samples) {
  decision.replaced.emplace_back(call.index_of("reduction"),
                                 static_cast<std::int64_t>(at::Reduction::Sum));
  decision.run = [samples](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    op.callBoxed(stack);
    auto& result = stack[stack.size() - op.schema().returns().size()];
    result = result.toTensor().div(static_cast<double>(samples));
  };
}

/// A part without samples contributes nothing; libtorch leaves its sum unset.
void sum_no_samples_to_zero(OpDecision& decision, const OpCall& call) {
  const auto position = call.position();
  if (!position || decision.inputs[0].local_numel(*position) > 0) return;
  decision.run = [](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    op.callBoxed(stack);
    stack[stack.size() - op.schema().returns().size()].toTensor().zero_();
  };
}

/// `target` is one class per sample, or a list of them.
std::optional<OpDecision> decide_margin(const OpCall& call, std::string_view target,
                                        std::string_view others) {
  if (call.ndim(0) != 2 || call.inputs()[0].tensor.numel() == 0) return std::nullopt;
  const std::int64_t reduction = call.integer("reduction");
  const bool is_none = reduction == at::Reduction::None;
  const std::string summed =
      is_none ? "" : concat(" | n: ", reduction == at::Reduction::Sum ? "sum" : "mean");
  const bool has_weight = call.inputs().size() == 3;
  auto decision = decide(
      call,
      OpRule::parse(concat(call.traits().base_name, ": (n c), ", target, has_weight ? ", (c)" : "",
                           " -> ", is_none ? "(n)" : "()", others, " | c: whole", summed)));
  if (decision && decision->mean_count) divide_by(*decision, call, *decision->mean_count);
  if (decision && !is_none) sum_no_samples_to_zero(*decision, call);
  return decision;
}

std::optional<OpDecision> decide_multi_margin(const OpCall& call) {
  return decide_margin(call, "(n)", "");
}

std::optional<OpDecision> decide_multilabel_margin(const OpCall& call) {
  return decide_margin(call, "(n c)", ", (n c)");
}

std::optional<OpDecision> decide_margin_backward(const OpCall& call, std::string_view target,
                                                 std::string_view third) {
  if (call.ndim(1) != 2 || call.inputs()[1].tensor.numel() == 0) return std::nullopt;
  const std::int64_t reduction = call.integer("reduction");
  const bool has_third = call.inputs().size() == 4;
  auto decision = decide(
      call, OpRule::parse(concat(call.traits().base_name, ": ",
                                 reduction == at::Reduction::None ? "(n)" : "()", ", (n c), ",
                                 target, has_third ? third : "", " -> (n c) | c: whole")));
  if (decision && reduction == at::Reduction::Mean) divide_by(*decision, call, call.shape(1)[0]);
  return decision;
}

std::optional<OpDecision> decide_multi_margin_backward(const OpCall& call) {
  return decide_margin_backward(call, "(n)", ", (c)");
}

std::optional<OpDecision> decide_multilabel_margin_backward(const OpCall& call) {
  return decide_margin_backward(call, "(n c)", ", (n c)");
}

}  // namespace

void add_margin_loss_rules(RuleTable& table) {
  table.emplace("multi_margin_loss", &decide_multi_margin);
  table.emplace("multi_margin_loss_backward", &decide_multi_margin_backward);
  table.emplace("multilabel_margin_loss_forward", &decide_multilabel_margin);
  table.emplace("multilabel_margin_loss_backward", &decide_multilabel_margin_backward);
}

}  // namespace tessera::detail
