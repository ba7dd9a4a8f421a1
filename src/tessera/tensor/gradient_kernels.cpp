#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/memory_order.h"
#include "tessera/tensor/places_gradient.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// Note [Gradients of leaves]
//
// The formulas of gradients leave them placed in whatever way moved the least; that of a replicated
// weight is often a sum that is still to be done. A leaf's `grad` is what users and optimizers see, so
// there it is brought into the leaf's own layout, once. Autograd stores a gradient for the first time
// by `detach`, or by `new_empty_strided` and `copy_`, and adds later ones in place, which keeps the
// layout. Leaves with a `PlacesGradient` hook are left to it.

/// The node that autograd is at; null outside of a backward pass.
const torch::autograd::Node* current_node() {
  if (torch::autograd::get_current_graph_task_id() == -1) return nullptr;
  return torch::autograd::get_current_node().get();
}

bool is_placed_by_a_hook(const at::Tensor& leaf) {
  const auto& hook = torch::autograd::impl::post_acc_grad_hooks(leaf);
  return dynamic_cast<const PlacesGradient*>(hook.get()) != nullptr;
}

/// The layout for a tensor that autograd is about to store as a leaf's gradient; nothing otherwise.
std::optional<Layout> leaf_layout(const torch::autograd::Node* node, const DTensorMeta& gradient) {
  const auto* accumulate = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
  // Hooks run here too, but not while there is no gradient yet.
  if (accumulate == nullptr || accumulate->variable.grad().defined()) return std::nullopt;
  const auto* leaf = dtensor_meta(accumulate->variable);
  if (leaf == nullptr || !(leaf->mesh() == gradient.mesh())) return std::nullopt;
  if (is_placed_by_a_hook(accumulate->variable)) return std::nullopt;
  const Layout layout = gradient_layout(leaf->layout());
  return layout.shape() == gradient.layout().shape() ? std::optional(layout) : std::nullopt;
}

void run_detach(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto* node = current_node();
  const at::Tensor self = stack->back().toTensor();
  const auto* meta = dtensor_meta(self);
  const auto layout = node == nullptr ? std::nullopt : leaf_layout(node, *meta);
  if (!layout || *layout == meta->layout()) {
    run_planned(op, stack);
    return;
  }
  const CauseScope cause("gradient of a leaf");
  stack->back() = move(self, meta->mesh(), *layout);
}

/// new_empty_strided. In the backward pass formulas make a tensor so to write to views of it: whole, it
/// can be viewed in any way. Elsewhere it is like the argument.
void run_new_empty_strided(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const std::size_t count = op.schema().arguments().size();
  const at::Tensor self = torch::jit::peek(*stack, 0, count).toTensor();
  const auto sizes = torch::jit::peek(*stack, 1, count).toIntVector();
  const GlobalStrides strides{.strides = torch::jit::peek(*stack, 2, count).toIntVector()};
  const auto dtype = torch::jit::peek(*stack, 3, count).toOptional<at::ScalarType>();
  const auto& meta = *dtensor_meta(self);
  const auto* node = current_node();
  Placements placements(static_cast<std::size_t>(meta.mesh().ndim()), Replicate());
  if (const auto own = leaf_layout(node, meta)) {
    placements = own->placements();
  } else if (node == nullptr && self.sizes() == at::IntArrayRef(sizes)) {
    placements = gradient_layout(meta.layout()).placements();
  }
  const Layout layout(meta.mesh().shape(), placements, sizes);
  const auto position = meta.mesh().shape().position_of(meta.mesh().world().rank());
  const auto local = at::empty(position ? layout.local_shape(*position) : Shape{0},
                               meta.local().options().dtype(dtype.value_or(self.scalar_type())));
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, make_dtensor(position ? in_memory_order(local, strides) : local,
                                        meta.mesh(), layout, strides));
}

}  // namespace

void add_gradient_kernels(KernelTable& table) {
  table.emplace("detach", &run_detach);
  table.emplace("new_empty_strided", &run_new_empty_strided);
}

}  // namespace tessera::detail
