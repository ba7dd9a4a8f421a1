#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/norm.h>

#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/plain_arguments.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// Ops that answer with a number, or with an error: the same on all ranks, whoever holds the elements.

/// Ranks outside of the mesh know no answer; the general way says so.
bool is_outside(const at::Tensor& tensor) {
  const auto* meta = dtensor_meta(tensor);
  return meta != nullptr && !meta->is_inside();
}

/// The bool in a DTensor without dims, known to all ranks.
bool answer(const OpTraits& traits, const at::Tensor& tensor) {
  const CauseScope cause(traits.base_name.c_str());
  const auto& meta = *dtensor_meta(tensor);
  return move(tensor, meta.mesh(), gradient_layout(meta.layout())).item().toBool();
}

void run_equal(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  adopt_plain_arguments(traits, *stack);
  const at::Tensor self = torch::jit::peek(*stack, 0, 2).toTensor();
  const at::Tensor other = torch::jit::peek(*stack, 1, 2).toTensor();
  if (is_outside(self)) return run_planned(op, stack);
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected object of data type ",
              self.scalar_type(), " but got data type ", other.scalar_type(),
              " for argument 'other' in call to equal");
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool is_equal = self.sizes() == other.sizes() && answer(traits, self.eq(other).all());
  torch::jit::drop(*stack, 2);
  torch::jit::push(*stack, is_equal);
}

void run_allclose(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  adopt_plain_arguments(traits, *stack);
  const auto argument = [&](std::size_t i) { return torch::jit::peek(*stack, i, 5); };
  if (is_outside(argument(0).toTensor())) return run_planned(op, stack);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool is_close = answer(
      traits, at::isclose(argument(0).toTensor(), argument(1).toTensor(), argument(2).toDouble(),
                          argument(3).toDouble(), argument(4).toBool())
                  .all());
  torch::jit::drop(*stack, 5);
  torch::jit::push(*stack, is_close);
}

/// dist(self, other, p): the norm of the difference.
void run_dist(const c10::OperatorHandle& /*op*/, torch::jit::Stack* stack) {
  const at::Tensor self = torch::jit::peek(*stack, 0, 3).toTensor();
  const at::Tensor other = torch::jit::peek(*stack, 1, 3).toTensor();
  const at::Scalar order = torch::jit::peek(*stack, 2, 3).toScalar();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor distance = at::norm(self - other, order);
  torch::jit::drop(*stack, 3);
  torch::jit::push(*stack, distance);
}

/// _linalg_check_errors(info, ...): what one rank has found wrong, all say.
void run_check_errors(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::Tensor info = torch::jit::peek(*stack, 0, op.schema().arguments().size()).toTensor();
  if (is_outside(info)) return run_planned(op, stack);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (answer(traits_of(op), info.ne(0).any())) {
    torch::jit::peek(*stack, 0, op.schema().arguments().size()) = full_tensor(info);
    op.callBoxed(*stack);
    return;
  }
  torch::jit::drop(*stack, op.schema().arguments().size());
}

}  // namespace

void add_comparison_kernels(KernelTable& table) {
  table.emplace("equal", &run_equal);
  table.emplace("allclose", &run_allclose);
  table.emplace("dist", &run_dist);
  table.emplace("_linalg_check_errors", &run_check_errors);
}

}  // namespace tessera::detail
