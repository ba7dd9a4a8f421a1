#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

/// index_select(self, dim, index): the dim that is indexed must be whole, the index may be cut.
std::optional<OpDecision> decide_index_select(const OpCall& call) {
  const std::int64_t ndim = call.ndim(0);
  if (ndim == 0 || call.inputs().size() != 2 || call.ndim(1) != 1) return std::nullopt;
  const std::int64_t dim = wrap_dim(call.integer("dim"), ndim);
  const Dims self("a", ndim);
  Dims output = self;
  output[dim] = "i";
  return decide(
      call, OpRule::parse(concat("index_select: ", self.text(), ", (i) -> ", output.text(), " | ",
                                 self[dim], ": whole | linear {0}")));
}

/// gather(self, dim, index): other dims pass where both have the same size.
std::optional<OpDecision> decide_gather(const OpCall& call) {
  const std::int64_t ndim = call.ndim(0);
  if (call.inputs().size() != 2 || call.ndim(1) != ndim) return std::nullopt;
  const std::int64_t dim = wrap_dim(call.integer("dim"), ndim);
  Dims self("a", ndim);
  Dims index = self;
  std::vector<std::string> whole;
  for (std::int64_t d = 0; d < ndim; ++d) {
    if (d != dim &&
        call.shape(0)[static_cast<std::size_t>(d)] == call.shape(1)[static_cast<std::size_t>(d)]) {
      continue;
    }
    index[d] = concat("i", d);
    whole.push_back(self[d]);
    // The index's own size along the dim may be cut; where only the sizes differ it may not.
    if (d != dim) whole.push_back(index[d]);
  }
  return decide(
      call, OpRule::parse(concat("gather: ", self.text(), ", ", index.text(), " -> ", index.text(),
                                 whole.empty() ? "" : " | ", joined(whole, " "),
                                 whole.empty() ? "" : ": whole", " | linear {0}")));
}

/// scatter and its kin: self, index and, unless a number is scattered, a source of at least the
/// index's shape. Other dims pass where all have the same size.
std::optional<OpDecision> decide_scatter(const OpCall& call) {
  const std::int64_t ndim = call.ndim(0);
  if (call.inputs().size() > 3) return std::nullopt;
  const std::int64_t dim = wrap_dim(call.integer("dim"), ndim);
  std::vector<Dims> dims(call.inputs().size());
  std::vector<std::string> whole;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (call.ndim(i) != ndim) return std::nullopt;
    for (std::int64_t d = 0; d < ndim; ++d) {
      const auto at = static_cast<std::size_t>(d);
      const bool passes = d != dim && call.shape(1)[at] == call.shape(0)[at] &&
                          call.shape(dims.size() - 1)[at] == call.shape(0)[at];
      dims[i].push_back(passes ? concat("a", d) : concat("b", i, "x", d));
      if (!passes) whole.push_back(dims[i][d]);
    }
  }
  std::vector<std::string> inputs;
  for (const auto& own : dims) inputs.push_back(own.text());
  const bool is_linear = call.traits().base_name == "scatter_add";
  return decide(call, OpRule::parse(concat(call.traits().base_name, ": ", joined(inputs), " -> ",
                                           dims[0].text(), whole.empty() ? "" : " | ",
                                           joined(whole, " "), whole.empty() ? "" : ": whole",
                                           is_linear ? " | linear {0 2}" : "")));
}

/// index_add, index_copy, index_fill and index_reduce: a list of places along one dim, which must be whole.
std::optional<OpDecision> decide_index_list(const OpCall& call) {
  const std::int64_t ndim = call.ndim(0);
  if (ndim == 0 || call.inputs().size() < 2 || call.ndim(1) != 1) return std::nullopt;
  const std::int64_t dim = wrap_dim(call.integer("dim"), ndim);
  const Dims self("a", ndim);
  Dims source = self;
  source[dim] = "i";
  std::vector<std::string> inputs = {self.text(), "(i)"};
  if (call.inputs().size() == 3) {
    if (call.ndim(2) != ndim && call.ndim(2) != 0) return std::nullopt;
    inputs.push_back(call.ndim(2) == 0 ? "()" : source.text());
  }
  const bool is_linear = call.traits().base_name == "index_add";
  return decide(call, OpRule::parse(concat(call.traits().base_name, ": ", joined(inputs), " -> ",
                                           self.text(), " | ", self[dim], " i: whole",
                                           is_linear ? " | linear {0 2}" : "")));
}

/// Ops that look every element of one tensor up in another one, which is whole: take, bucketize.
std::optional<OpDecision> decide_lookup(const OpCall& call, std::size_t table, bool is_linear) {
  if (call.inputs().size() != 2) return std::nullopt;
  const Dims asked("i", call.ndim(1 - table));
  const Dims held("s", call.ndim(table));
  std::vector<std::string> inputs = {held.text(), asked.text()};
  if (table == 1) std::swap(inputs[0], inputs[1]);
  const std::string whole =
      held.size() == 0 ? "" : concat(" | ", joined(held.names(), " "), ": whole");
  return decide(call, OpRule::parse(concat(call.traits().base_name, ": ", joined(inputs), " -> ",
                                           asked.text(), whole, is_linear ? " | linear {0}" : "")));
}

std::optional<OpDecision> decide_take(const OpCall& call) { return decide_lookup(call, 0, true); }

std::optional<OpDecision> decide_bucketize(const OpCall& call) {
  return decide_lookup(call, 1, false);
}

std::optional<OpDecision> decide_searchsorted(const OpCall& call) {
  return call.ndim(0) == 1 ? decide_lookup(call, 0, false) : std::nullopt;
}

/// embedding(weight, indices): rows may be cut. A rank then looks up what it has, leaves zeros for
/// the rest, and the sum over ranks is the result.
std::optional<OpDecision> decide_embedding(const OpCall& call) {
  if (call.inputs().size() != 2 || call.ndim(0) != 2) return std::nullopt;
  const Dims index("i", call.ndim(1));
  Dims output = index;
  output.push_back("d");
  const std::string tensors = concat("embedding: (v d), ", index.text(), " -> ", output.text());
  auto decision = decide(call, OpRule::parse(tensors + " | v: sum | linear {0}"));
  if (!decision) return std::nullopt;
  const auto cuts = decision->inputs[0].splits(0);
  if (cuts.empty()) return decision;
  if (std::any_of(cuts.begin(), cuts.end(), [](const Split& cut) { return cut.pieces > 1; })) {
    return decide(call, OpRule::parse(tensors + " | v: whole | linear {0}"));
  }
  const IndexSet rows = decision->inputs[0].owned(0, call.position().value_or(0));
  const std::int64_t begin = rows.runs().empty() ? 0 : rows.runs().front().begin;
  const std::int64_t end = begin + rows.size();
  const std::int64_t all = call.shape(0)[0];
  decision->run = [begin, end, all](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const std::size_t count = op.schema().arguments().size();
    const at::Tensor weight = torch::jit::peek(stack, 0, count).toTensor();
    const at::Tensor indices = torch::jit::peek(stack, 1, count).toTensor();
    torch::jit::drop(stack, count);
    // What is elsewhere must be somewhere.
    TORCH_CHECK_INDEX(!indices.lt(0).logical_or_(indices.ge(all)).any().item<bool>(),
                      "index out of range in self");
    auto sizes = indices.sizes().vec();
    sizes.push_back(weight.size(1));
    if (begin == end) {
      torch::jit::push(stack, at::zeros(sizes, weight.options()));
      return;
    }
    const at::Tensor elsewhere = indices.lt(begin).logical_or_(indices.ge(end));
    const at::Tensor own = indices.sub(begin).masked_fill_(elsewhere, 0);
    torch::jit::push(stack, at::embedding(weight, own).masked_fill_(elsewhere.unsqueeze(-1), 0));
  };
  return decision;
}

/// The gradient of embedding: contributions of cut indices are summed.
std::optional<OpDecision> decide_embedding_backward(const OpCall& call) {
  if (call.inputs().size() != 2 || call.argument("scale_grad_by_freq").toBool()) {
    return std::nullopt;
  }
  const Dims index("i", call.ndim(1));
  Dims gradient = index;
  gradient.push_back("d");
  const std::string summed =
      index.size() == 0 ? "" : concat(" | ", joined(index.names(), " "), ": sum");
  return decide(
      call,
      OpRule::parse(concat("embedding_dense_backward: ", gradient.text(), ", ", index.text(),
                           " -> (v d)", summed, " | v: whole | linear {0}")),
      {{"v", call.integer("num_weights")}});
}

}  // namespace

void add_index_rules(RuleTable& table) {
  table.emplace("index_select", &decide_index_select);
  table.emplace("gather", &decide_gather);
  for (const auto* name : {"scatter", "scatter_add", "scatter_reduce"}) {
    table.emplace(name, &decide_scatter);
  }
  for (const auto* name : {"index_add", "index_copy", "index_fill", "index_reduce"}) {
    table.emplace(name, &decide_index_list);
  }
  table.emplace("take", &decide_take);
  table.emplace("bucketize", &decide_bucketize);
  table.emplace("searchsorted", &decide_searchsorted);
  table.emplace("embedding", &decide_embedding);
  table.emplace("embedding_dense_backward", &decide_embedding_backward);
}

}  // namespace tessera::detail
