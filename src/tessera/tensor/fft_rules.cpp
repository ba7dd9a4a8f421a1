#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>

#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

/// Parts without elements: the transforms refuse them.
void give_nothing(OpDecision& decision, const OpCall& call, at::ScalarType dtype) {
  const auto position = call.position();
  if (!position || decision.inputs[0].local_numel(*position) > 0) return;
  const Shape shape = decision.outputs[0].local_shape(*position);
  decision.run = [shape, dtype](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const std::size_t count = op.schema().arguments().size();
    const auto options = torch::jit::peek(stack, 0, count).toTensor().options();
    torch::jit::drop(stack, count);
    torch::jit::push(stack, at::empty(shape, options.dtype(dtype)));
  };
}

/// Fourier transforms: the dims that are transformed are whole, and the last of them may get another
/// size. All are linear.
std::optional<OpDecision> decide_transform(const OpCall& call, std::optional<std::int64_t> last,
                                           at::ScalarType dtype) {
  if (call.inputs().size() != 1 || call.inputs()[0].tensor.numel() == 0) return std::nullopt;
  const Dims from("a", call.ndim(0));
  Dims to = from;
  std::vector<std::string> whole;
  std::vector<FactorSize> sizes;
  const auto dims = call.argument("dim").toIntVector();
  if (dims.empty()) return std::nullopt;
  for (const auto dim : dims) whole.push_back(from[wrap_dim(dim, from.size())]);
  if (last) {
    const std::int64_t dim = wrap_dim(dims.back(), from.size());
    to[dim] = "c";
    whole.emplace_back("c");
    sizes.push_back({"c", *last});
  }
  auto decision =
      decide(call,
             OpRule::parse(concat(call.traits().base_name, ": ", from.text(), " -> ", to.text(),
                                  " | ", joined(whole, " "), ": whole | linear {0}")),
             sizes);
  if (decision) give_nothing(*decision, call, dtype);
  return decision;
}

std::optional<OpDecision> decide_c2c(const OpCall& call) {
  return decide_transform(call, std::nullopt, call.inputs()[0].tensor.scalar_type());
}

std::optional<OpDecision> decide_r2c(const OpCall& call) {
  const auto& self = call.inputs()[0].tensor;
  const auto dims = call.argument("dim").toIntVector();
  if (dims.empty() || self.dim() == 0) return std::nullopt;
  const std::int64_t size = self.size(dims.back());
  return decide_transform(call, call.argument("onesided").toBool() ? size / 2 + 1 : size,
                          c10::toComplexType(self.scalar_type()));
}

std::optional<OpDecision> decide_c2r(const OpCall& call) {
  return decide_transform(call, call.integer("last_dim_size"),
                          c10::toRealValueType(call.inputs()[0].tensor.scalar_type()));
}

}  // namespace

void add_fft_rules(RuleTable& table) {
  table.emplace("_fft_c2c", &decide_c2c);
  table.emplace("_fft_r2c", &decide_r2c);
  table.emplace("_fft_c2r", &decide_c2r);
}

}  // namespace tessera::detail
