#include <algorithm>

#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

std::string all_inputs(std::size_t count) {
  std::vector<std::size_t> inputs;
  for (std::size_t i = 0; i < count; ++i) inputs.push_back(i);
  return concat(" | linear {", joined(inputs, " "), "}");
}

bool are_numbers(const OpCall& call) {
  return std::all_of(call.inputs().begin(), call.inputs().end(), [&](const CallTensor& input) {
    return input.tensor.scalar_type() == call.inputs()[0].tensor.scalar_type() &&
           input.tensor.scalar_type() != at::kBool;
  });
}

/// The dim along which tensors are joined must be whole; each has its own size there.
std::optional<OpDecision> decide_cat(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results || results->front().dim() == 0) return std::nullopt;
  const std::int64_t ndim = results->front().dim();
  const std::int64_t dim = wrap_dim(call.integer("dim"), ndim);
  const Dims names("a", ndim);
  std::vector<std::string> inputs;
  std::vector<std::string> whole;
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    // libtorch skips empty tensors of one dim, whatever the others are.
    if (call.ndim(i) != ndim) return std::nullopt;
    Dims own = names;
    own[dim] = concat("c", i);
    whole.push_back(own[dim]);
    inputs.push_back(own.text());
  }
  Dims output = names;
  output[dim] = "c";
  whole.push_back("c");
  return decide(call,
                OpRule::parse(concat("cat: ", joined(inputs), " -> ", output.text(), " | ",
                                     joined(whole, " "), ": whole",
                                     are_numbers(call) ? all_inputs(inputs.size()) : "")),
                {{"c", results->front().size(dim)}});
}

std::optional<OpDecision> decide_stack(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results) return std::nullopt;
  const std::int64_t ndim = results->front().dim();
  const std::int64_t dim = wrap_dim(call.integer("dim"), ndim);
  const Dims own("a", ndim - 1);
  Dims output = own;
  output.insert(dim, "c");
  const auto inputs = std::vector<std::string>(call.inputs().size(), own.text());
  return decide(
      call,
      OpRule::parse(concat("stack: ", joined(inputs), " -> ", output.text(), " | c: whole",
                           are_numbers(call) ? all_inputs(inputs.size()) : "")),
      {{"c", static_cast<std::int64_t>(inputs.size())}});
}

/// One input whose dims either stay as they are or change their size, and must be whole then.
std::optional<OpDecision> decide_resized(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results || call.inputs().size() != 1) return std::nullopt;
  const auto& result = results->front();
  if (result.dim() != call.ndim(0)) return std::nullopt;
  const Dims from("a", call.ndim(0));
  Dims to = from;
  std::vector<std::string> whole;
  std::vector<FactorSize> sizes;
  for (std::int64_t dim = 0; dim < from.size(); ++dim) {
    if (result.size(dim) == call.inputs()[0].tensor.size(dim) &&
        call.traits().base_name != "constant_pad_nd") {
      continue;
    }
    if (result.size(dim) == call.inputs()[0].tensor.size(dim)) {
      // Padding may take away what it adds at the other end.
      const auto pad = call.argument("pad").toIntVector();
      const auto at = static_cast<std::size_t>(2 * (from.size() - 1 - dim));
      if (at >= pad.size() || (pad[at] == 0 && pad[at + 1] == 0)) continue;
    }
    to[dim] = concat("c", dim);
    whole.push_back(from[dim]);
    whole.push_back(to[dim]);
    sizes.push_back({to[dim], result.size(dim)});
  }
  return decide(call,
                OpRule::parse(concat(call.traits().base_name, ": ", from.text(), " -> ", to.text(),
                                     whole.empty() ? "" : " | ", joined(whole, " "),
                                     whole.empty() ? "" : ": whole")),
                sizes);
}

/// repeat: dims that are repeated once pass.
std::optional<OpDecision> decide_repeat(const OpCall& call) {
  const auto repeats = call.argument("repeats").toIntVector();
  const std::int64_t added = static_cast<std::int64_t>(repeats.size()) - call.ndim(0);
  if (added < 0) return std::nullopt;
  const Dims from("a", call.ndim(0));
  Dims to;
  std::vector<std::string> whole;
  std::vector<FactorSize> sizes;
  for (std::int64_t dim = 0; dim < added + from.size(); ++dim) {
    const std::int64_t times = repeats[static_cast<std::size_t>(dim)];
    if (dim >= added && times == 1) {
      to.push_back(from[dim - added]);
      continue;
    }
    to.push_back(concat("c", dim));
    whole.push_back(to[dim]);
    if (dim >= added) whole.push_back(from[dim - added]);
    const std::int64_t size = dim < added ? 1 : call.inputs()[0].tensor.size(dim - added);
    sizes.push_back({to[dim], times * size});
  }
  return decide(
      call,
      OpRule::parse(concat("repeat: ", from.text(), " -> ", to.text(), whole.empty() ? "" : " | ",
                           joined(whole, " "), whole.empty() ? "" : ": whole", " | linear {0}")),
      sizes);
}

/// The gradient of glu, which halves a dim.
std::optional<OpDecision> decide_glu_backward(const OpCall& call) {
  const std::int64_t ndim = call.ndim(0);
  if (call.inputs().size() != 2 || call.ndim(1) != ndim || ndim == 0) return std::nullopt;
  const std::int64_t dim = wrap_dim(call.integer("dim"), ndim);
  const Dims self("a", ndim);
  Dims gradient = self;
  gradient[dim] = "g";
  return decide(call,
                OpRule::parse(concat("glu_backward: ", gradient.text(), ", ", self.text(), " -> ",
                                     self.text(), " | ", self[dim], " g: whole | linear {0}")));
}

}  // namespace

void add_join_rules(RuleTable& table) {
  table.emplace("cat", &decide_cat);
  table.emplace("stack", &decide_stack);
  table.emplace("constant_pad_nd", &decide_resized);
  table.emplace("glu", &decide_resized);
  table.emplace("glu_backward", &decide_glu_backward);
  table.emplace("repeat", &decide_repeat);
}

}  // namespace tessera::detail
