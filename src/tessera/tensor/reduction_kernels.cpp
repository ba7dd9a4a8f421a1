#include <cmath>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/nll_loss_forward.h>

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

/// The norm of parts: sums of powers can be added up before the root is taken.
at::Tensor norm_of_parts(const at::Tensor& self, double order,
                         const std::vector<std::int64_t>& dims, bool keepdim) {
  const at::OptionalIntArrayRef over =
      dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims);
  const at::Tensor size = self.abs();
  if (std::isinf(order)) return order > 0 ? size.amax(dims, keepdim) : size.amin(dims, keepdim);
  if (order == 0) return size.ne(0).sum(over, keepdim, size.scalar_type());
  if (order == 1) return size.sum(over, keepdim);
  if (order == 2) return size.square().sum(over, keepdim).sqrt();
  return size.pow(order).sum(over, keepdim).pow(1 / order);
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

/// nll_loss_forward: a mean is the sum of the losses by the sum of the weights, and both are sums
/// over ranks.
void run_nll(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  const std::size_t count = traits.arguments.size();
  const at::Tensor self = torch::jit::peek(*stack, 0, count).toTensor();
  const at::Tensor target = torch::jit::peek(*stack, 1, count).toTensor();
  const auto reduction = find(traits, *stack, "reduction")->toInt();
  const auto* meta = dtensor_meta(self);
  if (reduction != at::Reduction::Mean || meta == nullptr || self.dim() != 2 ||
      meta->layout().splits(0).empty()) {
    run_planned(op, stack);
    return;
  }
  const auto* weight = find(traits, *stack, "weight");
  const auto ignored = find(traits, *stack, "ignore_index")->toInt();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto [sum, total] = at::nll_loss_forward(
      self, target, weight == nullptr ? std::nullopt : std::optional(weight->toTensor()),
      at::Reduction::Sum, ignored);
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, sum.div(total), total);
}

}  // namespace

void add_reduction_kernels(KernelTable& table) {
  table.emplace("linalg_vector_norm", &run_norm);
  table.emplace("norm", &run_norm);
  table.emplace("_foreach_norm", &run_foreach_norm);
  table.emplace("nll_loss_forward", &run_nll);
}

}  // namespace tessera::detail
