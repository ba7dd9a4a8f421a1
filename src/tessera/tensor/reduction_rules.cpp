#include <algorithm>
#include <limits>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>

#include "tessera/base/error.h"
#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

std::vector<std::int64_t> reduced_dims(const OpCall& call) {
  if (!call.has_argument("dim")) return {};
  const auto& dim = call.argument("dim");
  if (dim.isInt()) return {dim.toInt()};
  return dim.isIntList() ? dim.toIntVector() : std::vector<std::int64_t>();
}

bool keeps_dims(const OpCall& call) {
  return call.has_argument("keepdim") && call.argument("keepdim").toBool();
}

std::optional<OpDecision> decide_reduction(const OpCall& call, std::optional<ReduceOp> op) {
  if (call.inputs().size() != 1) return std::nullopt;
  try {
    const OpRule rule = reduction_rule(call.traits().base_name, call.ndim(0), reduced_dims(call),
                                       keeps_dims(call), op);
    return decide(call, rule);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

/// A conversion to integers before the sum is not linear.
bool truncates(const OpCall& call) {
  return call.has_argument("dtype") && call.argument("dtype").isInt() &&
         !at::isFloatingType(call.argument("dtype").toScalarType()) &&
         at::isFloatingType(call.inputs()[0].tensor.scalar_type());
}

std::optional<OpDecision> decide_sum(const OpCall& call) {
  if (call.inputs().size() != 1 || truncates(call)) return std::nullopt;
  return decide_reduction(call, ReduceOp::sum);
}

/// Sums of something else than the elements themselves: contributions cannot pass.
std::optional<OpDecision> decide_count(const OpCall& call) {
  if (call.inputs().size() != 1) return std::nullopt;
  try {
    std::string text = reduction_rule(call.traits().base_name, call.ndim(0), reduced_dims(call),
                                      keeps_dims(call), ReduceOp::sum)
                           .to_string();
    const auto linear = text.find(" | linear");
    if (linear != std::string::npos) text.erase(linear);
    return decide(call, OpRule::parse(text));
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

std::optional<OpDecision> decide_prod(const OpCall& call) {
  return decide_reduction(call, ReduceOp::product);
}

std::optional<OpDecision> decide_any(const OpCall& call) {
  return decide_reduction(call, ReduceOp::bor);
}

std::optional<OpDecision> decide_all(const OpCall& call) {
  return decide_reduction(call, ReduceOp::band);
}

/// A mean over shards is the sum of the parts, divided by the number of all elements: parts may be
/// uneven, or empty.
std::optional<OpDecision> decide_mean(const OpCall& call) {
  auto decision = decide_reduction(call, ReduceOp::avg);
  if (!decision || !decision->mean_count) return decision;
  const auto dims = reduced_dims(call);
  const bool keepdim = keeps_dims(call);
  const std::int64_t count = *decision->mean_count;
  const std::size_t dtype_index = call.index_of("dtype");
  decision->run = [dims, keepdim, count, dtype_index](const c10::OperatorHandle& op,
                                                      torch::jit::Stack& stack) {
    const std::size_t arguments = op.schema().arguments().size();
    const at::Tensor self = torch::jit::peek(stack, 0, arguments).toTensor();
    const auto& dtype = torch::jit::peek(stack, dtype_index, arguments);
    const auto sum_dtype = dtype.isNone() ? std::optional<at::ScalarType>() : dtype.toScalarType();
    const auto sum = at::sum(self, dims, keepdim, sum_dtype);
    torch::jit::drop(stack, arguments);
    torch::jit::push(stack, sum.div(static_cast<double>(count)));
  };
  return decision;
}

/// The value that no element is beyond: what an empty part contributes.
at::Scalar identity_of(at::ScalarType dtype, ReduceOp op) {
  const bool is_max = op == ReduceOp::max;
  if (at::isFloatingType(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return is_max ? -infinity : infinity;
  }
  if (dtype == at::kBool) return !is_max;
  const int bits = static_cast<int>(c10::elementSize(dtype)) * 8;
  const bool is_signed = c10::isSignedType(dtype);
  const auto greatest = static_cast<std::int64_t>(
      (std::uint64_t{1} << (is_signed ? bits - 1 : std::min(bits, 63))) - 1);
  if (!is_max) return greatest;
  return is_signed ? -greatest - 1 : std::int64_t{0};
}

/// amax, amin, and max and min of all elements.
std::optional<OpDecision> decide_extreme(const OpCall& call, ReduceOp op) {
  // libtorch refuses to reduce nothing; what it says of the whole it must not say of a part.
  const Shape shape = call.shape(0);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return std::nullopt;
  auto decision = decide_reduction(call, op);
  if (!decision) return std::nullopt;
  const auto position = call.position();
  if (position && decision->inputs[0].local_numel(*position) == 0) {
    const Shape local = decision->outputs[0].local_shape(*position);
    decision->run = [local, op](const c10::OperatorHandle& handle, torch::jit::Stack& stack) {
      const std::size_t arguments = handle.schema().arguments().size();
      const at::Tensor self = torch::jit::peek(stack, 0, arguments).toTensor();
      torch::jit::drop(stack, arguments);
      torch::jit::push(stack, at::full(local, identity_of(self.scalar_type(), op), self.options()));
    };
  }
  return decision;
}

std::optional<OpDecision> decide_amax(const OpCall& call) {
  return decide_extreme(call, ReduceOp::max);
}

std::optional<OpDecision> decide_amin(const OpCall& call) {
  return decide_extreme(call, ReduceOp::min);
}

/// Ops whose dims must be whole; they may have several results of the same shape.
std::optional<OpDecision> decide_whole(const OpCall& call) {
  if (call.inputs().size() != 1) return std::nullopt;
  auto decision = decide_reduction(call, std::nullopt);
  if (!decision) return std::nullopt;
  const Layout output = decision->outputs.front();
  decision->outputs.assign(call.traits().returns.size(), output);
  return decision;
}

/// max and min: of everything, along a dim with indices, or of two tensors.
std::optional<OpDecision> decide_max(const OpCall& call) {
  if (call.has_argument("other")) return decide_pointwise(call);
  return call.has_argument("dim") ? decide_whole(call) : decide_amax(call);
}

std::optional<OpDecision> decide_min(const OpCall& call) {
  if (call.has_argument("other")) return decide_pointwise(call);
  return call.has_argument("dim") ? decide_whole(call) : decide_amin(call);
}

/// Ops along one dim that keep the shape: softmax, cumsum, sort, ... All tensors have that shape.
std::optional<OpDecision> decide_scan(const OpCall& call, std::vector<std::int64_t> dims,
                                      bool is_linear = false) {
  const Shape shape = call.shape(0);
  for (const auto& other : call.shapes()) {
    if (other != shape) return std::nullopt;
  }
  const Dims names("a", call.ndim(0));
  std::vector<std::string> whole;
  for (const auto dim : dims) {
    if (call.ndim(0) > 0) whole.push_back(names[wrap_dim(dim, call.ndim(0))]);
  }
  const std::string tensor = names.text();
  const auto inputs = std::vector<std::string>(call.inputs().size(), tensor);
  const auto outputs = std::vector<std::string>(call.traits().returns.size(), tensor);
  const std::string text =
      concat(call.traits().base_name, ": ", joined(inputs), " -> ", joined(outputs),
             whole.empty() ? "" : concat(" | ", joined(whole, " "), ": whole"),
             is_linear ? " | linear {0}" : "");
  return decide(call, OpRule::parse(text));
}

/// topk: along one dim, of which so many remain.
std::optional<OpDecision> decide_topk(const OpCall& call) {
  const std::int64_t ndim = call.ndim(0);
  if (call.inputs().size() != 1) return std::nullopt;
  if (ndim == 0) return decide_scan(call, {});
  const std::int64_t dim = wrap_dim(call.integer("dim"), ndim);
  if (dim < 0 || dim >= ndim) return std::nullopt;
  const Dims from("a", ndim);
  Dims to = from;
  to[dim] = "k";
  return decide(call,
                OpRule::parse(concat("topk: ", from.text(), " -> ", to.text(), ", ", to.text(),
                                     " | ", from[dim], " k: whole")),
                {{"k", call.integer("k")}});
}

std::optional<OpDecision> decide_softmax(const OpCall& call) {
  return decide_scan(call, {call.integer("dim")});
}

std::optional<OpDecision> decide_cumsum(const OpCall& call) {
  return decide_scan(call, {call.integer("dim")}, /*is_linear=*/true);
}

std::optional<OpDecision> decide_flip(const OpCall& call) {
  return decide_scan(call, call.argument("dims").toIntVector(), /*is_linear=*/true);
}

std::optional<OpDecision> decide_roll(const OpCall& call) {
  const auto dims = call.argument("dims").toIntVector();
  if (dims.empty()) return std::nullopt;
  return decide_scan(call, dims, /*is_linear=*/true);
}

std::optional<OpDecision> decide_triangle(const OpCall& call) {
  if (call.ndim(0) < 2) return std::nullopt;
  return decide_scan(call, {-1, -2}, /*is_linear=*/true);
}

/// rot90(self, k, dims): two dims are whole, and change places when k is odd.
std::optional<OpDecision> decide_rot90(const OpCall& call) {
  const auto dims = call.argument("dims").toIntVector();
  if (dims.size() != 2 || call.ndim(0) < 2) return std::nullopt;
  const std::int64_t first = wrap_dim(dims[0], call.ndim(0));
  const std::int64_t second = wrap_dim(dims[1], call.ndim(0));
  const Dims from("a", call.ndim(0));
  Dims to = from;
  if (call.integer("k") % 2 != 0) std::swap(to[first], to[second]);
  return decide(
      call, OpRule::parse(concat("rot90: ", from.text(), " -> ", to.text(), " | ", from[first], ' ',
                                 from[second], ": whole | linear {0}")));
}

/// renorm(self, p, dim, maxnorm): the slices along one dim are independent, and whole.
std::optional<OpDecision> decide_renorm(const OpCall& call) {
  std::vector<std::int64_t> others;
  const std::int64_t kept = wrap_dim(call.integer("dim"), call.ndim(0));
  for (std::int64_t dim = 0; dim < call.ndim(0); ++dim) {
    if (dim != kept) others.push_back(dim);
  }
  return decide_scan(call, others);
}

/// histc over given bounds: the counts of all parts are added up.
std::optional<OpDecision> decide_histc(const OpCall& call) {
  const double least = call.argument("min").toScalar().toDouble();
  if (call.ndim(0) == 0 || !(least < call.argument("max").toScalar().toDouble())) {
    return std::nullopt;
  }
  const Dims dims("a", call.ndim(0));
  return decide(call,
                OpRule::parse(concat("histc: ", dims.text(), " -> (k) | k: whole | ",
                                     joined(dims.names(), " "), ": sum")),
                {{"k", call.integer("bins")}});
}

/// item(): the only element, which all ranks need.
std::optional<OpDecision> decide_item(const OpCall& call) {
  if (call.inputs()[0].tensor.numel() != 1) return std::nullopt;
  OpDecision decision;
  decision.inputs = {call.replicated(call.inputs()[0].tensor)};
  return decision;
}

}  // namespace

void add_reduction_rules(RuleTable& table) {
  table.emplace("sum", &decide_sum);
  for (const auto* name : {"nansum", "count_nonzero"}) table.emplace(name, &decide_count);
  table.emplace("mean", &decide_mean);
  table.emplace("prod", &decide_prod);
  table.emplace("any", &decide_any);
  table.emplace("all", &decide_all);
  table.emplace("amax", &decide_amax);
  table.emplace("amin", &decide_amin);
  table.emplace("max", &decide_max);
  table.emplace("min", &decide_min);
  for (const auto* name : {"argmax", "argmin", "logsumexp", "var", "std", "var_mean", "std_mean",
                           "median", "nanmedian", "mode", "kthvalue", "aminmax"}) {
    table.emplace(name, &decide_whole);
  }
  for (const auto* name : {"_softmax", "_log_softmax", "_safe_softmax", "_softmax_backward_data",
                           "_log_softmax_backward_data", "cumprod", "logcumsumexp", "cummax",
                           "cummin", "sort", "argsort"}) {
    table.emplace(name, &decide_softmax);
  }
  for (const auto* name : {"linalg_vector_norm", "norm"}) table.emplace(name, &decide_whole);
  table.emplace("topk", &decide_topk);
  table.emplace("rot90", &decide_rot90);
  table.emplace("renorm", &decide_renorm);
  table.emplace("histc", &decide_histc);
  table.emplace("_local_scalar_dense", &decide_item);
  table.emplace("cumsum", &decide_cumsum);
  table.emplace("flip", &decide_flip);
  table.emplace("roll", &decide_roll);
  table.emplace("tril", &decide_triangle);
  table.emplace("triu", &decide_triangle);
}

}  // namespace tessera::detail
