#include <algorithm>

#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

/// The gradients of views: what was taken out of dims is put back there, and those are whole. `from`
/// are the gradient's dims, `whole` those of both that do not pass.
std::optional<OpDecision> decide_put_back(const OpCall& call, const Dims& from, const Dims& to,
                                          const std::vector<std::string>& whole) {
  const auto sizes = call.argument("input_sizes").toIntVector();
  std::vector<FactorSize> added;
  for (std::int64_t dim = 0; dim < to.size(); ++dim) {
    const bool is_new =
        std::find(from.names().begin(), from.names().end(), to[dim]) == from.names().end();
    if (is_new) added.push_back({to[dim], sizes[static_cast<std::size_t>(dim)]});
  }
  auto decision =
      decide(call,
             OpRule::parse(concat(call.traits().base_name, ": ", from.text(), " -> ", to.text(),
                                  " | ", joined(whole, " "), ": whole | linear {0}")),
             added);
  if (!decision) return std::nullopt;
  decision->replaced.emplace_back(
      call.index_of("input_sizes"),
      decision->outputs.front().local_shape(call.position().value_or(0)));
  return decision;
}

/// slice_backward, select_backward and unfold_backward.
std::optional<OpDecision> decide_put_back_along(const OpCall& call) {
  const auto ndim = std::ssize(call.argument("input_sizes").toIntVector());
  if (ndim == 0 || call.inputs().size() != 1) return std::nullopt;
  const std::int64_t dim = wrap_dim(call.integer("dim"), ndim);
  const Dims to("a", ndim);
  Dims from = to;
  std::vector<std::string> whole = {to[dim]};
  if (call.ndim(0) < ndim) {
    from.erase(dim);
  } else {
    from[dim] = "g";
    whole.emplace_back("g");
  }
  if (call.ndim(0) > ndim) {
    from.push_back("w");
    whole.emplace_back("w");
  }
  return decide_put_back(call, from, to, whole);
}

std::optional<OpDecision> decide_diagonal_backward(const OpCall& call) {
  const auto ndim = std::ssize(call.argument("input_sizes").toIntVector());
  if (ndim < 2 || call.inputs().size() != 1) return std::nullopt;
  const std::int64_t first = wrap_dim(call.integer("dim1"), ndim);
  const std::int64_t second = wrap_dim(call.integer("dim2"), ndim);
  const Dims to("a", ndim);
  Dims from;
  for (std::int64_t dim = 0; dim < ndim; ++dim) {
    if (dim != first && dim != second) from.push_back(to[dim]);
  }
  from.push_back("g");
  return decide_put_back(call, from, to, {to[first], to[second], "g"});
}

}  // namespace

void add_view_gradient_rules(RuleTable& table) {
  for (const auto* name : {"slice_backward", "select_backward", "unfold_backward"}) {
    table.emplace(name, &decide_put_back_along);
  }
  table.emplace("diagonal_backward", &decide_diagonal_backward);
}

}  // namespace tessera::detail
