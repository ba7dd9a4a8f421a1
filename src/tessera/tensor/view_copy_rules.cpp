#include <ATen/core/dispatch/Dispatcher.h>

#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// Views that are copies, and tensors into which a view's values are written.

/// The rules of views under the names of the ops that copy them, without `_copy`.
RuleTable viewed() {
  RuleTable table;
  add_view_rules(table);
  add_strided_rules(table);
  table.emplace("narrow", table.at("select"));
  table.emplace("_reshape", table.at("reshape"));
  return table;
}

/// As the view that is copied; nothing of the result may share memory with it.
std::optional<OpDecision> decide_copied(const OpCall& call) {
  static const RuleTable views = viewed();
  std::string_view name = call.traits().base_name;
  name.remove_suffix(std::string_view("_copy").size());
  const auto rule = views.find(name);
  const auto results = run_on_meta(call);
  if (rule == views.end() || !results) return std::nullopt;
  auto decision = rule->second(call);
  if (!decision) return std::nullopt;
  decision->strides.clear();
  for (const auto& result : *results) decision->strides.push_back(strides_on_meta(result));
  if (!decision->run) return decision;
  decision->run = [run = decision->run](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    run(op, stack);
    stack.back() = stack.back().toTensor().clone();
  };
  return decision;
}

/// A tensor that gets the values of `source` in place of one of its views. Dims that are whole stand in
/// `whole`; all others pass.
std::optional<OpDecision> decide_scattered(const OpCall& call, const Dims& self, const Dims& source,
                                           const std::vector<std::string>& whole) {
  const auto& numbers = call.inputs();
  const bool is_linear = numbers[0].tensor.scalar_type() == numbers[1].tensor.scalar_type() &&
                         numbers[0].tensor.scalar_type() != at::kBool;
  return decide(
      call, OpRule::parse(concat(call.traits().base_name, ": ", self.text(), ", ", source.text(),
                                 " -> ", self.text(), " | ", joined(whole, " "), ": whole",
                                 is_linear ? " | linear {0 1}" : "")));
}

std::optional<OpDecision> decide_scattered_along(const OpCall& call) {
  if (call.inputs().size() != 2 || call.ndim(0) == 0) return std::nullopt;
  const Dims self("a", call.ndim(0));
  const std::int64_t dim = wrap_dim(call.integer("dim"), self.size());
  Dims source = self;
  std::vector<std::string> whole = {self[dim]};
  if (call.ndim(1) < call.ndim(0)) {
    source.erase(dim);
  } else {
    source[dim] = "s";
    whole.emplace_back("s");
  }
  return decide_scattered(call, self, source, whole);
}

std::optional<OpDecision> decide_diagonal_scatter(const OpCall& call) {
  if (call.inputs().size() != 2 || call.ndim(0) < 2) return std::nullopt;
  const Dims self("a", call.ndim(0));
  const std::int64_t first = wrap_dim(call.integer("dim1"), self.size());
  const std::int64_t second = wrap_dim(call.integer("dim2"), self.size());
  Dims source;
  for (std::int64_t dim = 0; dim < self.size(); ++dim) {
    if (dim != first && dim != second) source.push_back(self[dim]);
  }
  source.push_back("s");
  return decide_scattered(call, self, source, {self[first], self[second], "s"});
}

/// diag_embed(self, offset, dim1, dim2): the last dim is whole and becomes two.
std::optional<OpDecision> decide_diag_embed(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results || call.ndim(0) == 0) return std::nullopt;
  const Dims from("a", call.ndim(0));
  const std::int64_t ndim = from.size() + 1;
  const std::int64_t first = wrap_dim(call.integer("dim1"), ndim);
  const std::int64_t second = wrap_dim(call.integer("dim2"), ndim);
  Dims to;
  std::int64_t next = 0;
  for (std::int64_t dim = 0; dim < ndim; ++dim) {
    to.push_back(dim == first ? "r" : dim == second ? "c" : from[next++]);
  }
  return decide(call,
                OpRule::parse(concat("diag_embed: ", from.text(), " -> ", to.text(), " | ",
                                     from[from.size() - 1], " r c: whole | linear {0}")),
                {{"r", results->front().size(first)}, {"c", results->front().size(second)}});
}

}  // namespace

void add_view_copy_rules(RuleTable& table) {
  for (const auto* name :
       {"_reshape_copy", "alias_copy",     "as_strided_copy",      "detach_copy",
        "diagonal_copy", "expand_copy",    "narrow_copy",          "permute_copy",
        "select_copy",   "slice_copy",     "split_copy",           "split_with_sizes_copy",
        "squeeze_copy",  "t_copy",         "transpose_copy",       "unbind_copy",
        "unfold_copy",   "unsqueeze_copy", "view_as_complex_copy", "view_as_real_copy",
        "view_copy"}) {
    table.emplace(name, &decide_copied);
  }
  for (const auto* name : {"select_scatter", "slice_scatter"}) {
    table.emplace(name, &decide_scattered_along);
  }
  table.emplace("diagonal_scatter", &decide_diagonal_scatter);
  table.emplace("diag_embed", &decide_diag_embed);
}

}  // namespace tessera::detail
