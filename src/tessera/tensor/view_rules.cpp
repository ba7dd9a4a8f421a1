#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>

#include "tessera/base/error.h"
#include "tessera/plan/view_choice.h"
#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

/// The strides of all results; those of views follow from the global ones of what they view.
void set_strides(OpDecision& decision, const std::vector<at::Tensor>& results) {
  decision.strides.clear();
  for (const auto& result : results) decision.strides.push_back(strides_on_meta(result));
}

Shape local_shape(const OpCall& call, const Layout& layout) {
  return layout.local_shape(call.position().value_or(0));
}

/// Ops that keep the order of the elements: view, squeeze, unsqueeze, ...
std::optional<OpDecision> decide_reshape(const OpCall& call) {
  if (call.inputs().size() != 1) return std::nullopt;
  const auto results = run_on_meta(call);
  if (!results || results->size() != 1) return std::nullopt;
  if (results->front().scalar_type() != call.inputs()[0].tensor.scalar_type()) return std::nullopt;
  const ViewChoice choice = choose_view(call.layout(0), results->front().sizes().vec());
  OpDecision decision;
  decision.inputs = {choice.input};
  decision.outputs = {choice.output};
  set_strides(decision, *results);
  // Not the op itself: local sizes may be 1 where global ones are not.
  const Shape shape = local_shape(call, choice.output);
  const std::size_t count = call.traits().arguments.size();
  decision.run = [shape, count](const c10::OperatorHandle& /*op*/, torch::jit::Stack& stack) {
    const at::Tensor self = torch::jit::peek(stack, 0, count).toTensor();
    torch::jit::drop(stack, count);
    // A part that cannot be viewed so is copied; it is marked as a copy afterwards. Most can, which
    // `reshape` would find out in an op of its own.
    torch::jit::push(stack, self.is_contiguous() ? self.view(shape) : self.reshape(shape));
  };
  return decision;
}

/// Ops that return their argument as it is.
std::optional<OpDecision> decide_alias(const OpCall& call) {
  OpDecision decision;
  decision.inputs = {call.layout(0)};
  decision.outputs = {call.layout(0)};
  const auto& tensor = call.inputs()[0].tensor;
  if (!tensor.is_contiguous() || tensor.storage_offset() != 0) {
    decision.strides = {{.strides = tensor.strides().vec(), .offset = tensor.storage_offset()}};
  }
  return decision;
}

/// A decision by a rule for one input, with strides as libtorch computes them.
std::optional<OpDecision> decide_view(const OpCall& call, const std::string& text,
                                      const std::vector<FactorSize>& sizes = {}) {
  const auto results = run_on_meta(call);
  if (!results) return std::nullopt;
  auto decision = decide(call, OpRule::parse(text), sizes);
  if (!decision) return std::nullopt;
  set_strides(*decision, *results);
  return decision;
}

std::optional<OpDecision> decide_permuted(const OpCall& call, const Dims& from, const Dims& to) {
  return decide_view(
      call, concat(call.traits().base_name, ": ", from.text(), " -> ", to.text(), " | linear {0}"));
}

std::optional<OpDecision> decide_permute(const OpCall& call) {
  const std::int64_t ndim = call.ndim(0);
  const Dims from("a", ndim);
  Dims to;
  const auto order = call.argument("dims").toIntVector();
  if (static_cast<std::int64_t>(order.size()) != ndim) return std::nullopt;
  for (const auto dim : order) to.push_back(from[wrap_dim(dim, ndim)]);
  return decide_permuted(call, from, to);
}

std::optional<OpDecision> decide_swapped(const OpCall& call, std::int64_t a, std::int64_t b) {
  const std::int64_t ndim = call.ndim(0);
  const Dims from("a", ndim);
  Dims to = from;
  if (ndim > 0) std::swap(to[wrap_dim(a, ndim)], to[wrap_dim(b, ndim)]);
  return decide_permuted(call, from, to);
}

std::optional<OpDecision> decide_transpose(const OpCall& call) {
  if (!call.argument(1).isInt()) return std::nullopt;
  return decide_swapped(call, call.integer("dim0"), call.integer("dim1"));
}

std::optional<OpDecision> decide_t(const OpCall& call) {
  return call.ndim(0) < 2 ? decide_alias(call) : decide_swapped(call, 0, 1);
}

std::optional<OpDecision> decide_expand(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results) return std::nullopt;
  const auto& result = results->front();
  const std::int64_t added = result.dim() - call.ndim(0);
  Dims from("a", call.ndim(0));
  Dims to("b", added);
  std::vector<FactorSize> sizes;
  for (std::int64_t dim = 0; dim < added; ++dim) sizes.push_back({to[dim], result.size(dim)});
  for (std::int64_t dim = 0; dim < call.ndim(0); ++dim) {
    if (call.inputs()[0].tensor.size(dim) == result.size(added + dim)) {
      to.push_back(from[dim]);
      continue;
    }
    to.push_back(concat("b", added + dim));
    sizes.push_back({to[added + dim], result.size(added + dim)});
    from[dim] = "1";
  }
  auto decision =
      decide_view(call, concat("expand: ", from.text(), " -> ", to.text(), " | linear {0}"), sizes);
  if (!decision) return std::nullopt;
  decision->replaced.emplace_back(call.index_of("size"),
                                  local_shape(call, decision->outputs.front()));
  return decision;
}

/// Ops that take something out of one dim, which must be whole for that; other dims stay. The
/// results may be many, each with its own size along the dim, or without it.
std::optional<OpDecision> decide_along(const OpCall& call, std::int64_t dim) {
  const auto results = run_on_meta(call);
  if (!results || call.ndim(0) == 0) return std::nullopt;
  const std::int64_t ndim = call.ndim(0);
  dim = wrap_dim(dim, ndim);
  const Dims from("a", ndim);
  std::vector<std::string> outputs;
  std::vector<std::string> whole = {from[dim]};
  std::vector<FactorSize> sizes;
  for (std::size_t i = 0; i < results->size(); ++i) {
    Dims to = from;
    if ((*results)[i].dim() < ndim) {
      to.erase(dim);
    } else {
      to[dim] = concat("c", i);
      whole.push_back(to[dim]);
      sizes.push_back({to[dim], (*results)[i].size(dim)});
    }
    outputs.push_back(to.text());
  }
  if (outputs.empty()) return std::nullopt;
  return decide_view(call,
                     concat(call.traits().base_name, ": ", from.text(), " -> ", joined(outputs),
                            " | ", joined(whole, " "), ": whole | linear {0}"),
                     sizes);
}

std::optional<OpDecision> decide_along_dim(const OpCall& call) {
  return decide_along(call, call.integer("dim"));
}

std::optional<OpDecision> decide_slice(const OpCall& call) {
  if (!call.has_argument("dim") || !call.argument("dim").isInt() || call.ndim(0) == 0) {
    return std::nullopt;
  }
  const auto results = run_on_meta(call);
  if (results && results->front().sizes() == call.inputs()[0].tensor.sizes() &&
      call.integer("step") == 1) {
    // All of the dim: nothing is taken out.
    auto decision = decide_alias(call);
    decision->replaced.emplace_back(call.index_of("start"), c10::IValue());
    decision->replaced.emplace_back(call.index_of("end"), c10::IValue());
    return decision;
  }
  return decide_along(call, call.integer("dim"));
}

/// diagonal(self, offset, dim1, dim2): the two dims are whole and become the last one.
std::optional<OpDecision> decide_diagonal(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results || call.ndim(0) < 2) return std::nullopt;
  const Dims from("a", call.ndim(0));
  const std::int64_t first = wrap_dim(call.integer("dim1"), from.size());
  const std::int64_t second = wrap_dim(call.integer("dim2"), from.size());
  Dims to;
  for (std::int64_t dim = 0; dim < from.size(); ++dim) {
    if (dim != first && dim != second) to.push_back(from[dim]);
  }
  to.push_back("c");
  return decide_view(call,
                     concat("diagonal: ", from.text(), " -> ", to.text(), " | ", from[first], ' ',
                            from[second], " c: whole | linear {0}"),
                     {{"c", results->front().size(-1)}});
}

/// unfold(self, dimension, size, step): windows of one dim, which is whole.
std::optional<OpDecision> decide_unfold(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results || call.ndim(0) == 0) return std::nullopt;
  const Dims from("a", call.ndim(0));
  const std::int64_t dim = wrap_dim(call.integer("dimension"), from.size());
  Dims to = from;
  to[dim] = "c";
  to.push_back("w");
  return decide_view(call,
                     concat("unfold: ", from.text(), " -> ", to.text(), " | ", from[dim],
                            " c w: whole | linear {0}"),
                     {{"c", results->front().size(dim)}, {"w", results->front().size(-1)}});
}

/// Complex numbers as pairs in a dim of their own, behind all others.
std::optional<OpDecision> decide_view_as_real(const OpCall& call) {
  const Dims from("a", call.ndim(0));
  Dims to = from;
  to.push_back("c");
  auto decision = decide_view(
      call, concat("view_as_real: ", from.text(), " -> ", to.text(), " | c: whole | linear {0}"),
      {{"c", 2}});
  if (!decision) return std::nullopt;
  // A part may be a conjugate that was put off, of which the whole knows nothing.
  decision->run = [](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    stack.back() = stack.back().toTensor().resolve_conj();
    op.callBoxed(stack);
  };
  return decision;
}

std::optional<OpDecision> decide_view_as_complex(const OpCall& call) {
  if (call.ndim(0) == 0) return std::nullopt;
  const Dims to("a", call.ndim(0) - 1);
  Dims from = to;
  from.push_back("c");
  auto decision = decide_view(call, concat("view_as_complex: ", from.text(), " -> ", to.text(),
                                           " | c: whole | linear {0}"));
  if (!decision) return std::nullopt;
  // The pairs of a part may lie apart even where those of the whole do not.
  decision->run = [](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const at::Tensor self = stack.back().toTensor();
    if (self.numel() == 0) {
      stack.back() = at::empty(self.sizes(), self.options());
    } else if (self.stride(-1) != 1) {
      stack.back() = self.contiguous();
    }
    op.callBoxed(stack);
  };
  return decision;
}

}  // namespace

void add_view_rules(RuleTable& table) {
  for (const auto* name :
       {"view", "_unsafe_view", "_reshape_alias", "reshape", "squeeze", "unsqueeze"}) {
    table.emplace(name, &decide_reshape);
  }
  for (const auto* name : {"alias", "detach", "lift_fresh", "lift"}) {
    table.emplace(name, &decide_alias);
  }
  table.emplace("permute", &decide_permute);
  table.emplace("transpose", &decide_transpose);
  table.emplace("t", &decide_t);
  table.emplace("expand", &decide_expand);
  table.emplace("slice", &decide_slice);
  table.emplace("diagonal", &decide_diagonal);
  table.emplace("unfold", &decide_unfold);
  table.emplace("view_as_real", &decide_view_as_real);
  table.emplace("view_as_complex", &decide_view_as_complex);
  for (const auto* name : {"select", "split", "split_with_sizes", "unbind", "unsafe_split",
                           "unsafe_split_with_sizes"}) {
    table.emplace(name, &decide_along_dim);
  }
}

}  // namespace tessera::detail
