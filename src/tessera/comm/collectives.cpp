#include "tessera/comm/collectives.h"

#include <algorithm>

#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>

#include "tessera/comm/collectives_autograd.h"

// All-reduce, all-gather and reduce-scatter, of one tensor and of several.

namespace tessera {
namespace {

using detail::at_index;
using detail::Call;
using detail::Cut;
using detail::Cuts;
using detail::IssuedPtr;
using detail::Sizes;
using detail::Tensors;

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
}

// For backward passes, of one tensor or several that are cut in known ways.
Tensors all_gather_with(const Tensors& tensors, const Cuts& cuts, const Group& group);
Tensors reduce_scatter_with(const Tensors& tensors, const Cuts& cuts, ReduceOp op,
                            const Group& group);

/// The product of all other members' `x`.
at::Tensor product_of_others(const at::Tensor& x, const Group& group) {
  const Sizes ones(at_index(group.size()), 1);
  const at::Tensor all = all_gather(x.unsqueeze(0), 0, group, {.sizes = ones});
  at::Tensor product = at::ones_like(x);
  for (std::int64_t i = 0; i < group.size(); ++i) {
    if (i != group.index()) product = product.mul(all.select(0, i));
  }
  return product;
}

/// Which of this rank's elements are the extremes `y`, each weighed with the number of members that
/// have it.
at::Tensor extreme_weights(const at::Tensor& x, const at::Tensor& y, const Group& group) {
  const c10::NoGradGuard constant;
  const at::Tensor mask = x.eq(y).to(x.scalar_type());
  return mask.div(all_reduce(mask, ReduceOp::sum, group));
}

/// The gradient of `x`, which is reduced by `op` to `y`, given the sum of all gradients of `y`.
at::Tensor reduction_gradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& y,
                              ReduceOp op, const Group& group) {
  switch (op) {
    case ReduceOp::avg:
      return gradient.div(group.size());
    case ReduceOp::min:
    case ReduceOp::max:
      return gradient.mul(extreme_weights(x, y, group));
    case ReduceOp::product:
      return gradient.mul(product_of_others(x, group).conj());
    default:
      return gradient;
  }
}

bool is_linear(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg; }

/// What all-reduce and reduce-scatter have in common.
class Reduction : public detail::Collective {
 public:
  Reduction(const Group& group, ReduceOp op) : group_(group), op_(op) {}

  [[nodiscard]] bool needs_values() const override { return !is_linear(op_); }
  [[nodiscard]] bool is_differentiable() const override { return !is_bitwise(op_); }

 protected:
  [[nodiscard]] const Group& group() const { return group_; }
  [[nodiscard]] ReduceOp op() const { return op_; }

  /// Gradients of the inputs from the sums of all members' gradients of the whole outputs.
  [[nodiscard]] Tensors gradients_of(const Tensors& sums, const Tensors& inputs,
                                     const Tensors& outputs) const {
    Tensors gradients;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const at::Tensor none;
      gradients.push_back(reduction_gradient(sums[i], needs_values() ? inputs[i] : none,
                                             needs_values() ? outputs[i] : none, op_, group_));
    }
    return gradients;
  }

 private:
  Group group_;
  ReduceOp op_;
};

class AllReduce final : public Reduction {
 public:
  using Reduction::Reduction;

  [[nodiscard]] IssuedPtr issue(const Call& call, const Tensors& inputs) const override {
    return detail::issue_all_reduce(call, inputs, op());
  }

  [[nodiscard]] Tensors backward(const Tensors& gradients, const Tensors& inputs,
                                 const Tensors& outputs) const override {
    const Tensors sums = gradients.size() == 1
                             ? Tensors{all_reduce(gradients.front(), ReduceOp::sum, group())}
                             : all_reduce(gradients, ReduceOp::sum, group());
    return gradients_of(sums, inputs, outputs);
  }
};

class ReduceScatter final : public Reduction {
 public:
  ReduceScatter(const Group& group, ReduceOp op, Cuts cuts)
      : Reduction(group, op), cuts_(std::move(cuts)) {}

  [[nodiscard]] IssuedPtr issue(const Call& call, const Tensors& inputs) const override {
    return detail::issue_reduce_scatter(call, inputs, cuts_, op());
  }

  [[nodiscard]] Tensors backward(const Tensors& gradients, const Tensors& inputs,
                                 const Tensors& outputs) const override {
    const Tensors whole = needs_values() ? whole_outputs(outputs) : Tensors();
    return gradients_of(all_gather_with(gradients, cuts_, group()), inputs, whole);
  }

 private:
  [[nodiscard]] Tensors whole_outputs(const Tensors& outputs) const {
    // Only compared with the inputs, for which a product has no need.
    const c10::NoGradGuard constant;
    return op() == ReduceOp::product ? outputs : all_gather_with(outputs, cuts_, group());
  }

  Cuts cuts_;
};

class AllGather final : public detail::Collective {
 public:
  AllGather(const Group& group, Cuts cuts) : group_(group), cuts_(std::move(cuts)) {}

  [[nodiscard]] IssuedPtr issue(const Call& call, const Tensors& inputs) const override {
    return detail::issue_all_gather(call, inputs, cuts_);
  }

  [[nodiscard]] Tensors backward(const Tensors& gradients, const Tensors& /*inputs*/,
                                 const Tensors& /*outputs*/) const override {
    return reduce_scatter_with(gradients, cuts_, ReduceOp::sum, group_);
  }

 private:
  Group group_;
  Cuts cuts_;
};

bool require_tensors(Call& call, const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& x) { return detail::require_tensor(call, x); });
}

std::int64_t total_numel(const Tensors& tensors) {
  std::int64_t total = 0;
  for (const auto& tensor : tensors) total += tensor.numel();
  return total;
}

/// `float32[4,3], int64[2]`.
std::string describe(const Tensors& tensors) {
  std::string text;
  for (const auto& tensor : tensors) text += (text.empty() ? "" : ", ") + detail::describe(tensor);
  return text;
}

/// `float32[*,3] dim 0 sizes [2,1]`, with the size of the cut dim where that must agree.
std::string describe(const Tensors& tensors, const Cuts& cuts, bool has_whole_dims) {
  std::string text;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) text += ", ";
    text += detail::describe(tensors[i], has_whole_dims ? -1 : cuts[i].dim);
    text += " dim " + std::to_string(cuts[i].dim);
    if (!cuts[i].sizes.empty()) text += " sizes " + detail::bracketed(cuts[i].sizes);
  }
  return text;
}

/// One cut per tensor along `dim`; a negative one counts from each tensor's end.
Cuts make_cuts(Call& call, const Tensors& tensors, std::int64_t dim, const Sizes& sizes) {
  Cuts cuts;
  for (const auto& tensor : tensors) {
    std::int64_t own_dim = dim;
    if (!detail::require_dim(call, tensor.dim(), own_dim)) return {};
    cuts.push_back({own_dim, sizes});
  }
  return cuts;
}

Tensors reduce_all(const char* name, const Tensors& tensors, ReduceOp op, const Group& group,
                   bool async_op) {
  Call call("all_reduce", name, group);
  if (require_tensors(call, tensors)) {
    for (const auto& x : tensors) detail::require_reducible(call, x, op);
  }
  call.agree([&] { return describe(tensors) + ' ' + to_string(op); },
             call.is_valid() && total_numel(tensors) > 0);
  return detail::perform(call, c10::make_intrusive<AllReduce>(group, op), tensors, async_op);
}

/// Fills in the sizes that the members tell each other, or compares those that are given.
void agree_on_sizes(Call& call, const Tensors& tensors, Cuts& cuts) {
  const auto arguments = [&] { return describe(tensors, cuts, /*has_whole_dims=*/false); };
  const bool are_given = call.is_valid() && (cuts.empty() || !cuts.front().sizes.empty());
  if (are_given || tensors.empty()) {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const Sizes counts = detail::piece_counts({tensors[i]}, {cuts[i]});
      for (const auto count : counts) total += count;
    }
    call.agree(arguments, total > 0);
    return;
  }
  Sizes own;
  for (std::size_t i = 0; i < cuts.size(); ++i) own.push_back(tensors[i].size(cuts[i].dim));
  const auto all = call.share(arguments, own, static_cast<std::int64_t>(tensors.size()));
  for (std::size_t i = 0; i < all.size(); ++i) cuts[i % cuts.size()].sizes.push_back(all[i]);
}

Tensors gather_all(Call& call, const Tensors& tensors, Cuts cuts, const Group& group,
                   bool async_op) {
  agree_on_sizes(call, tensors, cuts);
  return detail::perform(call, c10::make_intrusive<AllGather>(group, std::move(cuts)), tensors,
                         async_op);
}

Tensors reduce_and_scatter(Call& call, const Tensors& tensors, Cuts cuts, ReduceOp op,
                           const Group& group, bool async_op) {
  for (std::size_t i = 0; call.is_valid() && i < tensors.size(); ++i) {
    const std::int64_t whole = tensors[i].size(cuts[i].dim);
    detail::require_reducible(call, tensors[i], op);
    if (cuts[i].sizes.empty()) cuts[i].sizes = detail::chunk_sizes(whole, group.size());
    detail::require_total(call, tensors[i], cuts[i].dim, cuts[i].sizes, "sizes");
  }
  call.agree([&] { return describe(tensors, cuts, /*has_whole_dims=*/true) + ' ' + to_string(op); },
             call.is_valid() && total_numel(tensors) > 0);
  return detail::perform(call, c10::make_intrusive<ReduceScatter>(group, op, std::move(cuts)),
                         tensors, async_op);
}

constexpr const char* kAllGather = "all_gather_into_tensor";
constexpr const char* kAllGatherList = "all_gather_into_tensor_coalesced";
constexpr const char* kReduceScatter = "reduce_scatter_tensor";
constexpr const char* kReduceScatterList = "reduce_scatter_tensor_coalesced";

Tensors all_gather_with(const Tensors& tensors, const Cuts& cuts, const Group& group) {
  Call call("all_gather", tensors.size() == 1 ? kAllGather : kAllGatherList, group);
  return gather_all(call, tensors, cuts, group, /*async_op=*/false);
}

Tensors reduce_scatter_with(const Tensors& tensors, const Cuts& cuts, ReduceOp op,
                            const Group& group) {
  Call call("reduce_scatter", tensors.size() == 1 ? kReduceScatter : kReduceScatterList, group);
  return reduce_and_scatter(call, tensors, cuts, op, group, /*async_op=*/false);
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& x, ReduceOp op, const Group& group,
                      const CollectiveOptions& options) {
  return reduce_all("all_reduce", {x}, op, group, options.async_op).front();
}

std::vector<at::Tensor> all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op,
                                   const Group& group, const CollectiveOptions& options) {
  return reduce_all("all_reduce_coalesced", tensors, op, group, options.async_op);
}

at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, const Group& group,
                      const SplitOptions& options) {
  Call call("all_gather", kAllGather, group);
  const bool is_usable = detail::require_tensor(call, x);
  const at::Tensor in = is_usable && x.dim() == 0 ? x.reshape({1}) : x;
  Cuts cuts;
  if (is_usable) cuts = make_cuts(call, {in}, dim, options.sizes);
  if (call.is_valid() && !options.sizes.empty()) {
    detail::require_own_size(call, in, cuts.front().dim, options.sizes);
  }
  return gather_all(call, {in}, std::move(cuts), group, options.async_op).front();
}

std::vector<at::Tensor> all_gather(const std::vector<at::Tensor>& tensors, std::int64_t dim,
                                   const Group& group, const CollectiveOptions& options) {
  Call call("all_gather", kAllGatherList, group);
  Cuts cuts;
  if (require_tensors(call, tensors)) cuts = make_cuts(call, tensors, dim, {});
  return gather_all(call, tensors, std::move(cuts), group, options.async_op);
}

at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, ReduceOp op, const Group& group,
                          const SplitOptions& options) {
  Call call("reduce_scatter", kReduceScatter, group);
  Cuts cuts;
  if (detail::require_tensor(call, x)) cuts = make_cuts(call, {x}, dim, options.sizes);
  return reduce_and_scatter(call, {x}, std::move(cuts), op, group, options.async_op).front();
}

std::vector<at::Tensor> reduce_scatter(const std::vector<at::Tensor>& tensors, std::int64_t dim,
                                       ReduceOp op, const Group& group,
                                       const CollectiveOptions& options) {
  Call call("reduce_scatter", kReduceScatterList, group);
  Cuts cuts;
  if (require_tensors(call, tensors)) cuts = make_cuts(call, tensors, dim, {});
  return reduce_and_scatter(call, tensors, std::move(cuts), op, group, options.async_op);
}

}  // namespace tessera
