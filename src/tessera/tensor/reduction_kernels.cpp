#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nll_loss_forward.h>

#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/op_traits.h"
#include "tessera/tensor/rule_text.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// Reductions whose parts do not combine by one op, but by a sum with something behind it.

/// The argument of that name on the stack; null when the op has none, or it is None.
const c10::IValue* find(const OpTraits& traits, const torch::jit::Stack& stack,
                        std::string_view name) {
  for (std::size_t i = 0; i < traits.arguments.size(); ++i) {
    if (traits.arguments[i].name != name) continue;
    const auto& value = torch::jit::peek(stack, i, traits.arguments.size());
    return value.isNone() ? nullptr : &value;
  }
  return nullptr;
}

std::vector<std::int64_t> dims_in(const c10::IValue* dims) {
  if (dims == nullptr) return {};
  return dims->isInt() ? std::vector<std::int64_t>{dims->toInt()} : dims->toIntVector();
}

/// Whether ranks hold different parts of what is reduced; no dims mean all of them.
bool is_cut_along(const Layout& layout, const std::vector<std::int64_t>& dims) {
  if (layout.numel() == 0) return false;
  for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
    const bool is_reduced = dims.empty() || std::any_of(dims.begin(), dims.end(), [&](auto other) {
                              return wrap_dim(other, layout.ndim()) == dim;
                            });
    if (is_reduced && !layout.splits(dim).empty()) return true;
  }
  return false;
}

/// The same tensor with reductions over ranks done, so that using it twice reduces it once.
at::Tensor whole(const at::Tensor& tensor) {
  const auto& meta = *dtensor_meta(tensor);
  return move(tensor, meta.mesh(), gradient_layout(meta.layout()));
}

/// The norm of parts: sums of powers can be added up before the root is taken.
at::Tensor norm_of_parts(const at::Tensor& self, double order,
                         const std::vector<std::int64_t>& dims, bool keepdim) {
  const at::OptionalIntArrayRef over =
      dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims);
  const at::Tensor size = self.abs();
  if (std::isinf(order)) return order > 0 ? size.amax(dims, keepdim) : size.amin(dims, keepdim);
  if (order == 0) return size.ne(0).sum(over, keepdim, size.scalar_type());
  if (order == 1) return size.sum(over, keepdim);
  const CauseScope cause("norm");
  if (order == 2) return whole(size.square().sum(over, keepdim)).sqrt();
  return whole(size.pow(order).sum(over, keepdim)).pow(1 / order);
}

/// linalg_vector_norm and norm.
void run_norm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  const at::Tensor self = torch::jit::peek(*stack, 0, traits.arguments.size()).toTensor();
  const auto* meta = dtensor_meta(self);
  const auto dims = dims_in(find(traits, *stack, "dim"));
  if (meta == nullptr || !is_cut_along(meta->layout(), dims)) {
    run_planned(op, stack);
    return;
  }
  const auto* order = find(traits, *stack, traits.base_name == "norm" ? "p" : "ord");
  const auto* keepdim = find(traits, *stack, "keepdim");
  const auto* asked = find(traits, *stack, "dtype");
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto dtype = asked != nullptr ? asked->toScalarType() : self.scalar_type();
  // Powers of short floating-point numbers overflow and round too soon.
  const bool is_short = dtype == at::kHalf || dtype == at::kBFloat16;
  const at::Tensor norm = norm_of_parts(self.to(is_short ? at::kFloat : dtype),
                                        order == nullptr ? 2 : order->toScalar().toDouble(), dims,
                                        keepdim != nullptr && keepdim->toBool());
  torch::jit::drop(*stack, traits.arguments.size());
  torch::jit::push(*stack, is_short ? norm.to(dtype) : norm);
}

/// _foreach_norm: each tensor has its own layout, so each is a call of its own.
void run_foreach_norm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  const auto tensors = torch::jit::peek(*stack, 0, traits.arguments.size()).toTensorVector();
  const auto* order = find(traits, *stack, "ord");
  const auto* dtype = find(traits, *stack, "dtype");
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::List<at::Tensor> norms;
  for (const auto& tensor : tensors) {
    norms.push_back(at::linalg_vector_norm(
        tensor, order == nullptr ? at::Scalar(2) : order->toScalar(), std::nullopt, false,
        dtype == nullptr ? std::nullopt : std::optional(dtype->toScalarType())));
  }
  torch::jit::drop(*stack, traits.arguments.size());
  torch::jit::push(*stack, std::move(norms));
}

/// var, std, var_mean and std_mean over dims that are cut: a mean, then the mean of the squares of
/// what differs from it.
void run_variance(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  const at::Tensor self = torch::jit::peek(*stack, 0, traits.arguments.size()).toTensor();
  const auto* meta = dtensor_meta(self);
  const auto dims = dims_in(find(traits, *stack, "dim"));
  const bool is_known = traits.schema->overload_name() == "correction" &&
                        self.is_floating_point() && self.element_size() >= 4;
  if (meta == nullptr || !is_known || !is_cut_along(meta->layout(), dims)) {
    run_planned(op, stack);
    return;
  }
  const auto* correction = find(traits, *stack, "correction");
  const auto* keepdim = find(traits, *stack, "keepdim");
  const bool keeps = keepdim != nullptr && keepdim->toBool();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::OptionalIntArrayRef over =
      dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims);
  const CauseScope cause(traits.base_name.c_str());
  const at::Tensor mean = whole(at::mean(self, over, /*keepdim=*/true));
  const at::Tensor squares = (self - mean).square().sum(over, keeps);
  const double count = static_cast<double>(self.numel()) / static_cast<double>(mean.numel());
  const double freedom = count - (correction == nullptr ? 1 : correction->toScalar().toDouble());
  at::Tensor result = squares / std::max(freedom, 0.0);
  if (traits.base_name.starts_with("std")) result = whole(result).sqrt();
  const bool has_mean = traits.returns.size() == 2;
  torch::jit::drop(*stack, traits.arguments.size());
  torch::jit::push(*stack, result);
  if (has_mean) torch::jit::push(*stack, mean.reshape(result.sizes()));
}

/// logsumexp over dims that are cut: the greatest value is taken out, and the rest summed.
void run_logsumexp(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  const at::Tensor self = torch::jit::peek(*stack, 0, traits.arguments.size()).toTensor();
  const auto* meta = dtensor_meta(self);
  const auto dims = dims_in(find(traits, *stack, "dim"));
  if (meta == nullptr || !self.is_floating_point() || !is_cut_along(meta->layout(), dims)) {
    run_planned(op, stack);
    return;
  }
  const bool keeps = find(traits, *stack, "keepdim")->toBool();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const CauseScope cause("logsumexp");
  at::Tensor greatest = whole(at::amax(self, dims, /*keepdim=*/true));
  greatest = greatest.masked_fill(greatest.abs().eq(INFINITY), 0);
  const at::Tensor sum = whole((self - greatest).exp().sum(dims, keeps));
  const at::Tensor result = sum.log() + greatest.reshape(sum.sizes());
  torch::jit::drop(*stack, traits.arguments.size());
  torch::jit::push(*stack, result);
}

/// nll_loss_forward: a mean is the sum of the losses by the sum of the weights, and both are sums
/// over ranks.
void run_nll(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  const std::size_t count = traits.arguments.size();
  const at::Tensor self = torch::jit::peek(*stack, 0, count).toTensor();
  const at::Tensor target = torch::jit::peek(*stack, 1, count).toTensor();
  const auto reduction = find(traits, *stack, "reduction")->toInt();
  const auto* meta = dtensor_meta(self);
  const bool is_known = self.dim() == 2 || traits.base_name == "nll_loss2d_forward";
  const bool is_whole =
      meta != nullptr &&
      std::all_of(meta->layout().placements().begin(), meta->layout().placements().end(),
                  [](const Placement& placement) { return is_replicate(placement); });
  if (reduction != at::Reduction::Mean || meta == nullptr || !is_known || is_whole) {
    run_planned(op, stack);
    return;
  }
  const auto* weight = find(traits, *stack, "weight");
  const auto ignored = find(traits, *stack, "ignore_index")->toInt();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto given = weight == nullptr ? std::nullopt : std::optional(weight->toTensor());
  const auto [sum, total] =
      self.dim() == 2 ? at::nll_loss_forward(self, target, given, at::Reduction::Sum, ignored)
                      : at::nll_loss2d_forward(self, target, given, at::Reduction::Sum, ignored);
  const CauseScope cause(traits.base_name.c_str());
  const at::Tensor weights = whole(total);
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, sum.div(weights), weights);
}

}  // namespace

void add_reduction_kernels(KernelTable& table) {
  table.emplace("linalg_vector_norm", &run_norm);
  table.emplace("norm", &run_norm);
  table.emplace("_foreach_norm", &run_foreach_norm);
  for (const auto* name : {"var", "std", "var_mean", "std_mean"}) {
    table.emplace(name, &run_variance);
  }
  table.emplace("logsumexp", &run_logsumexp);
  table.emplace("nll_loss_forward", &run_nll);
  table.emplace("nll_loss2d_forward", &run_nll);
}

}  // namespace tessera::detail
