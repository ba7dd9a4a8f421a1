#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>

#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

std::optional<OpDecision> decide_text(const OpCall& call, const std::string& text) {
  return decide(call, OpRule::parse(text));
}

std::optional<OpDecision> decide_mm(const OpCall& call) {
  return decide_text(call, "mm: (m k), (k n) -> (m n) | k: sum | linear {0}, {1}");
}

std::optional<OpDecision> decide_bmm(const OpCall& call) {
  return decide_text(call, "bmm: (b m k), (b k n) -> (b m n) | k: sum | linear {0}, {1}");
}

std::optional<OpDecision> decide_mv(const OpCall& call) {
  return decide_text(call, "mv: (m k), (k) -> (m) | k: sum | linear {0}, {1}");
}

std::optional<OpDecision> decide_dot(const OpCall& call) {
  return decide_text(call, "dot: (k), (k) -> () | k: sum | linear {0}, {1}");
}

/// The dims of what is added to a product of dims `to`: aligned at the end, and 1 where it is
/// broadcast.
Dims added_dims(const OpCall& call, std::size_t input, const Shape& product, const Dims& to) {
  Dims added;
  const std::int64_t ndim = call.ndim(input);
  for (std::int64_t i = 0; i < ndim; ++i) {
    const std::int64_t at = to.size() - ndim + i;
    const bool follows =
        at >= 0 && call.inputs()[input].tensor.size(i) == product[static_cast<std::size_t>(at)];
    added.push_back(follows ? to[at] : "1");
  }
  return added;
}

std::optional<OpDecision> decide_added(const OpCall& call, const Dims& left, const Dims& right,
                                       const Dims& to, const Shape& product) {
  if (call.inputs().size() != 3 || call.ndim(0) > to.size()) return std::nullopt;
  const Dims added = added_dims(call, 0, product, to);
  return decide_text(
      call, concat(call.traits().base_name, ": ", added.text(), ", ", left.text(), ", ",
                   right.text(), " -> ", to.text(), " | k: sum {0} | linear {0 1}, {0 2}"));
}

Dims named(std::initializer_list<const char*> names) {
  Dims dims;
  for (const auto* name : names) dims.push_back(name);
  return dims;
}

std::optional<OpDecision> decide_addmm(const OpCall& call) {
  if (call.inputs().size() != 3 || call.ndim(1) != 2 || call.ndim(2) != 2) return std::nullopt;
  return decide_added(call, named({"m", "k"}), named({"k", "n"}), named({"m", "n"}),
                      {call.shape(1)[0], call.shape(2)[1]});
}

std::optional<OpDecision> decide_baddbmm(const OpCall& call) {
  if (call.inputs().size() != 3 || call.ndim(1) != 3 || call.ndim(2) != 3) return std::nullopt;
  return decide_added(call, named({"b", "m", "k"}), named({"b", "k", "n"}), named({"b", "m", "n"}),
                      {call.shape(1)[0], call.shape(1)[1], call.shape(2)[2]});
}

/// addbmm adds the products of all samples up.
std::optional<OpDecision> decide_addbmm(const OpCall& call) {
  if (call.inputs().size() != 3 || call.ndim(0) > 2 || call.ndim(1) != 3 || call.ndim(2) != 3) {
    return std::nullopt;
  }
  const Dims added = added_dims(call, 0, {call.shape(1)[1], call.shape(2)[2]}, named({"m", "n"}));
  return decide_text(call, concat("addbmm: ", added.text(), ", (b m k), (b k n) -> (m n) | b k: ",
                                  "sum {0} | linear {0 1}, {0 2}"));
}

std::optional<OpDecision> decide_addmv(const OpCall& call) {
  if (call.inputs().size() != 3 || call.ndim(1) != 2) return std::nullopt;
  auto decision =
      decide_added(call, named({"m", "k"}), named({"k"}), named({"m"}), {call.shape(1)[0]});
  if (!decision || call.shape(0) == Shape{call.shape(1)[0]}) return decision;
  // Without columns, which a part may lack, libtorch forgets to broadcast what is added.
  const Shape local = decision->outputs.front().local_shape(call.position().value_or(0));
  decision->run = [local](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    auto& added = torch::jit::peek(stack, 0, op.schema().arguments().size());
    added = added.toTensor().expand(local);
    op.callBoxed(stack);
  };
  return decision;
}

std::optional<OpDecision> decide_addr(const OpCall& call) {
  if (call.inputs().size() != 3 || call.ndim(0) > 2 || call.ndim(1) != 1 || call.ndim(2) != 1) {
    return std::nullopt;
  }
  const Dims added = added_dims(call, 0, {call.shape(1)[0], call.shape(2)[0]}, named({"m", "n"}));
  return decide_text(call,
                     concat("addr: ", added.text(), ", (m), (n) -> (m n) | linear {0 1}, {0 2}"));
}

std::optional<OpDecision> decide_cdist(const OpCall& call) {
  if (call.ndim(0) != call.ndim(1) || call.ndim(0) < 2) return std::nullopt;
  Dims left("b", call.ndim(0) - 2);
  Dims right = left;
  Dims to = left;
  left.push_back("m");
  left.push_back("d");
  right.push_back("n");
  right.push_back("d");
  to.push_back("m");
  to.push_back("n");
  return decide_text(
      call, concat("cdist: ", left.text(), ", ", right.text(), " -> ", to.text(), " | d: whole"));
}

/// The gradient of the first argument, which is linear in the gradient and separate in all features.
std::optional<OpDecision> decide_cdist_backward(const OpCall& call) {
  if (call.inputs().size() != 4 || call.ndim(1) != call.ndim(2) || call.ndim(1) < 2) {
    return std::nullopt;
  }
  const std::string samples = joined(Dims("b", call.ndim(1) - 2).names(), " ");
  const std::string pairs = concat('(', samples, " m n)");
  return decide_text(call, concat("_cdist_backward: ", pairs, ", (", samples, " m d), (", samples,
                                  " n d), ", pairs, " -> (", samples, " m d) | n: sum"));
}

/// Products of three tensors, summed over some dims: bilinear.
std::optional<OpDecision> decide_trilinear(const OpCall& call) {
  const auto summed = call.argument("sumdim").toIntVector();
  std::vector<std::string> inputs;
  std::int64_t ndim = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto added = call.argument(concat("expand", i + 1)).toIntVector();
    ndim = call.ndim(i) + std::ssize(added);
    Dims dims;
    for (std::int64_t d = 0; d < ndim; ++d) {
      if (std::find(added.begin(), added.end(), d) == added.end()) dims.push_back(concat("a", d));
    }
    if (dims.size() != call.ndim(i)) return std::nullopt;
    inputs.push_back(dims.text());
  }
  Dims output;
  std::vector<std::string> sums;
  for (std::int64_t d = 0; d < ndim; ++d) {
    const bool is_summed = std::find(summed.begin(), summed.end(), d) != summed.end();
    if (is_summed) sums.push_back(concat("a", d));
    if (!is_summed) output.push_back(concat("a", d));
  }
  return decide_text(call, concat("_trilinear: ", joined(inputs), " -> ", output.text(),
                                  sums.empty() ? "" : concat(" | ", joined(sums, " "), ": sum"),
                                  " | linear {0}, {1}, {2}"));
}

/// linalg_cross(self, other, dim): vectors of three numbers along one dim, broadcast otherwise.
std::optional<OpDecision> decide_cross(const OpCall& call) {
  const std::int64_t ndim = call.ndim(0);
  if (call.inputs().size() != 2 || call.ndim(1) != ndim || ndim == 0) return std::nullopt;
  const Dims output("a", ndim);
  std::vector<Dims> inputs = {output, output};
  for (std::size_t d = 0; d < static_cast<std::size_t>(ndim); ++d) {
    const std::int64_t most = std::max(call.shape(0)[d], call.shape(1)[d]);
    for (std::size_t i = 0; i < 2; ++i) {
      if (call.shape(i)[d] == 1 && most != 1) inputs[i][static_cast<std::int64_t>(d)] = "1";
    }
  }
  return decide_text(
      call,
      concat("linalg_cross: ", inputs[0].text(), ", ", inputs[1].text(), " -> ", output.text(),
             " | ", output[wrap_dim(call.integer("dim"), ndim)], ": whole | linear {0}, {1}"));
}

}  // namespace

void add_matmul_rules(RuleTable& table) {
  table.emplace("mm", &decide_mm);
  table.emplace("bmm", &decide_bmm);
  table.emplace("mv", &decide_mv);
  table.emplace("dot", &decide_dot);
  table.emplace("vdot", &decide_dot);
  table.emplace("addmm", &decide_addmm);
  table.emplace("baddbmm", &decide_baddbmm);
  table.emplace("addmv", &decide_addmv);
  table.emplace("addr", &decide_addr);
  table.emplace("addbmm", &decide_addbmm);
  table.emplace("_cdist_forward", &decide_cdist);
  table.emplace("_cdist_backward", &decide_cdist_backward);
  table.emplace("_trilinear", &decide_trilinear);
  table.emplace("linalg_cross", &decide_cross);
}

}  // namespace tessera::detail
