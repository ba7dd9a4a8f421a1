#include <algorithm>
#include <numeric>

#include <ATen/core/dispatch/Dispatcher.h>

#include "tessera/base/check.h"
#include "tessera/plan/view_choice.h"
#include "tessera/tensor/memory_order.h"
#include "tessera/tensor/meta_call.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// as_strided is how autograd writes to views: it knows their geometry, not the ops that made them.
// The rule reads sizes, strides and offset back as slices, selections and a permutation of dims.

/// What a view takes of one dim of its base.
struct Taken {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t count = 1;
  /// The view's dim; nothing when a single index was selected.
  std::optional<std::int64_t> to;
};

/// The geometry that is asked for; its offset counts from where the base begins.
Geometry asked_geometry(const OpCall& call) {
  const at::Tensor& base = call.inputs()[0].tensor;
  const auto& offset = call.argument("storage_offset");
  return {.sizes = call.argument("size").toIntVector(),
          .strides = call.argument("stride").toIntVector(),
          .offset = offset.isInt() ? offset.toInt() - base.storage_offset() : 0};
}

/// The base's dims, those with the longest strides first.
std::vector<std::int64_t> by_stride(const at::Tensor& base) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(base.dim()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return base.stride(a) > base.stride(b); });
  return order;
}

/// Reads a view as what it takes of every dim of its base; nothing when it is not of that kind.
std::optional<std::vector<Taken>> read_view(const at::Tensor& base, const Geometry& view) {
  std::vector<Taken> taken(static_cast<std::size_t>(base.dim()));
  const auto order = by_stride(base);
  std::int64_t rest = view.offset;
  for (const auto dim : order) {
    if (base.size(dim) == 1) continue;
    if (base.stride(dim) == 0 || base.size(dim) == 0) return std::nullopt;
    auto& start = taken[static_cast<std::size_t>(dim)].start;
    start = std::min(rest / base.stride(dim), base.size(dim) - 1);
    rest -= start * base.stride(dim);
  }
  if (rest != 0) return std::nullopt;
  for (std::size_t to = 0; to < view.sizes.size(); ++to) {
    const std::int64_t count = view.sizes[to];
    if (count == 1) continue;
    const auto fits = [&](std::int64_t dim) {
      const auto& own = taken[static_cast<std::size_t>(dim)];
      if (own.to || base.size(dim) == 1 || view.strides[to] % base.stride(dim) != 0) return false;
      const std::int64_t step = view.strides[to] / base.stride(dim);
      return step > 0 && count > 0 && own.start + (count - 1) * step < base.size(dim);
    };
    const auto found = std::find_if(order.begin(), order.end(), fits);
    if (found == order.end()) return std::nullopt;
    auto& own = taken[static_cast<std::size_t>(*found)];
    own.step = view.strides[to] / base.stride(*found);
    own.count = count;
    own.to = static_cast<std::int64_t>(to);
  }
  return taken;
}

bool is_all(const Taken& taken, std::int64_t size) {
  return taken.to && taken.start == 0 && taken.step == 1 && taken.count == size;
}

/// Takes the same of a local part, whose dims are whole where not all is taken.
at::Tensor take(at::Tensor local, const std::vector<Taken>& taken, const std::vector<bool>& whole,
                std::size_t view_ndim) {
  std::vector<std::int64_t> order(view_ndim, -1);
  std::vector<std::int64_t> selected;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const auto dim = static_cast<std::int64_t>(i);
    const auto& own = taken[i];
    if (!own.to) {
      local = local.narrow(dim, own.start, 1);
      selected.push_back(dim);
      continue;
    }
    order[static_cast<std::size_t>(*own.to)] = dim;
    if (whole[i]) {
      local = local.slice(dim, own.start, own.start + (own.count - 1) * own.step + 1, own.step);
    }
  }
  std::vector<std::int64_t> permutation;
  std::copy_if(order.begin(), order.end(), std::back_inserter(permutation),
               [](std::int64_t dim) { return dim >= 0; });
  permutation.insert(permutation.end(), selected.begin(), selected.end());
  local = local.permute(permutation);
  for (std::size_t i = 0; i < selected.size(); ++i) local = local.select(-1, 0);
  for (std::size_t to = 0; to < order.size(); ++to) {
    if (order[to] < 0) local = local.unsqueeze(static_cast<std::int64_t>(to));
  }
  return local;
}

std::optional<OpDecision> decide_taken(const OpCall& call, const Geometry& view,
                                       const std::vector<Taken>& taken) {
  const Dims from("a", call.ndim(0));
  Dims to;
  for (std::size_t i = 0; i < view.sizes.size(); ++i) to.push_back("1");
  std::vector<std::string> whole;
  std::vector<bool> is_whole;
  std::vector<FactorSize> sizes;
  for (std::int64_t dim = 0; dim < from.size(); ++dim) {
    const auto& own = taken[static_cast<std::size_t>(dim)];
    is_whole.push_back(!is_all(own, call.inputs()[0].tensor.size(dim)));
    if (own.to) to[*own.to] = is_whole.back() ? concat("c", dim) : from[dim];
    if (!is_whole.back()) continue;
    whole.push_back(from[dim]);
    if (!own.to) continue;
    whole.push_back(to[*own.to]);
    sizes.push_back({to[*own.to], own.count});
  }
  auto decision =
      decide(call,
             OpRule::parse(concat("as_strided: ", from.text(), " -> ", to.text(),
                                  whole.empty() ? "" : concat(" | ", joined(whole, " "), ": whole"),
                                  " | linear {0}")),
             sizes);
  if (!decision) return std::nullopt;
  decision->run = [taken, is_whole, ndim = view.sizes.size()](const c10::OperatorHandle& op,
                                                              torch::jit::Stack& stack) {
    const std::size_t count = op.schema().arguments().size();
    const at::Tensor self = torch::jit::peek(stack, 0, count).toTensor();
    torch::jit::drop(stack, count);
    torch::jit::push(stack, take(self, taken, is_whole, ndim));
  };
  return decision;
}

bool is_contiguous(const Geometry& view) {
  std::int64_t stride = 1;
  for (std::size_t i = view.sizes.size(); i-- > 0;) {
    if (view.sizes[i] != 1 && view.strides[i] != stride) return false;
    stride *= view.sizes[i];
  }
  return true;
}

/// The same elements in the same order: `view` under another name.
std::optional<OpDecision> decide_reordered(const OpCall& call, const Geometry& view,
                                           const at::Tensor& result) {
  const at::Tensor& base = call.inputs()[0].tensor;
  // What is asked for, not the result, which is a copy for some ops.
  if (!base.is_contiguous() || !is_contiguous(view) || base.numel() != result.numel() ||
      view.offset != 0) {
    return std::nullopt;
  }
  const ViewChoice choice = choose_view(call.layout(0), result.sizes().vec());
  OpDecision decision;
  decision.inputs = {choice.input};
  decision.outputs = {choice.output};
  const Shape shape = choice.output.local_shape(call.position().value_or(0));
  decision.run = [shape](const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const std::size_t count = op.schema().arguments().size();
    const at::Tensor self = torch::jit::peek(stack, 0, count).toTensor();
    torch::jit::drop(stack, count);
    torch::jit::push(stack, self.reshape(shape));
  };
  return decision;
}

/// Anything else is taken of the whole tensor, which must lie in memory as it says.
OpDecision decide_on_whole(const OpCall& call, const Geometry& view, const at::Tensor& result) {
  const at::Tensor& base = call.inputs()[0].tensor;
  OpDecision decision;
  decision.inputs = {call.replicated(base)};
  decision.outputs = {call.replicated(result)};
  const auto strides = base.strides().vec();
  const bool is_dense = base.is_non_overlapping_and_dense();
  decision.run = [view, strides, is_dense](const c10::OperatorHandle& op,
                                           torch::jit::Stack& stack) {
    const std::size_t count = op.schema().arguments().size();
    at::Tensor self = torch::jit::peek(stack, 0, count).toTensor();
    if (is_dense) self = in_memory_order(self, {.strides = strides, .offset = 0});
    TESSERA_CHECK(is_dense || self.strides() == at::IntArrayRef(strides), op.operator_name(),
                  ": a view of a DTensor given that had to move, and has no other memory than its ",
                  "own elements; take the view of the tensor itself");
    torch::jit::drop(stack, count);
    torch::jit::push(
        stack, self.as_strided(view.sizes, view.strides, self.storage_offset() + view.offset));
  };
  return decision;
}

std::optional<OpDecision> decide_as_strided(const OpCall& call) {
  const auto results = run_on_meta(call);
  if (!results || call.inputs().size() != 1) return std::nullopt;
  const at::Tensor& result = results->front();
  const Geometry view = asked_geometry(call);
  std::optional<OpDecision> decision;
  if (const auto taken = read_view(call.inputs()[0].tensor, view)) {
    decision = decide_taken(call, view, *taken);
  }
  if (!decision) decision = decide_reordered(call, view, result);
  if (!decision) decision = decide_on_whole(call, view, result);
  decision->strides = {strides_on_meta(result)};
  return decision;
}

}  // namespace

void add_strided_rules(RuleTable& table) { table.emplace("as_strided", &decide_as_strided); }

}  // namespace tessera::detail
