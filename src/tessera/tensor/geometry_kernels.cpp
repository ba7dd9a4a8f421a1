#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include "tessera/base/check.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/memory_order.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {

/// t_, squeeze_, ...: the view is made as by the op that does not write, and takes the tensor's place.
void run_inplace_view(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const OpTraits& traits = traits_of(op);
  auto& dispatcher = c10::Dispatcher::singleton();
  const std::string name = "aten::" + traits.base_name;
  auto functional = dispatcher.findOp({name, op.operator_name().overload_name});
  // transpose_ belongs to transpose.int.
  if (!functional) functional = dispatcher.findOp({name, "int"});
  TESSERA_CHECK(functional.has_value(), traits.name,
                ": a DTensor cannot change its shape in place this way; make a new tensor instead");
  const at::Tensor self = torch::jit::peek(*stack, 0, traits.arguments.size()).toTensor();
  run_distributed(*functional, stack);
  const at::Tensor view = torch::jit::pop(*stack).toTensor();
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(view.sizes(), view.strides(), view.storage_offset());
  // The tensor itself now, not a view of it any more: nothing is left that it could fail to show.
  const auto& meta = *dtensor_meta(view);
  impl->set_backend_meta(
      c10::make_intrusive<DTensorMeta>(meta.local_or_pending(), meta.mesh(), meta.layout()));
  torch::jit::push(*stack, self);
}

namespace {

/// resize_ to the present shape does nothing; anything else has no meaning for a layout.
void run_resize(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const at::Tensor self = torch::jit::peek(*stack, 0, count).toTensor();
  const auto sizes = torch::jit::peek(*stack, 1, count).toIntVector();
  TESSERA_CHECK(self.sizes() == at::IntArrayRef(sizes), op.operator_name(), ": ",
                describe_tensor(self), " cannot be resized to [", joined(sizes, ","),
                "]; make a new DTensor of that shape, with tessera::empty for example");
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, self);
}

/// Which kernel attention uses. Decided by global properties, so that all ranks take the same.
void run_attention_choice(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  constexpr std::int64_t kMath = 0;
  constexpr std::int64_t kFlash = 1;
  const std::size_t count = op.schema().arguments().size();
  const auto argument = [&](std::size_t i) { return torch::jit::peek(*stack, i, count); };
  const at::Tensor query = argument(0).toTensor();
  const at::Tensor key = argument(1).toTensor();
  const at::Tensor value = argument(2).toTensor();
  const bool has_mask = argument(3).isTensor() && argument(3).toTensor().defined();
  const double dropout = argument(4).toDouble();
  bool fits = query.device().is_cpu() && query.dim() == 4 && !has_mask && dropout == 0.0 &&
              at::isFloatingType(query.scalar_type()) && query.size(-1) == value.size(-1) &&
              key.numel() > 0 && query.numel() > 0 && query.size(1) == key.size(1) &&
              query.size(1) == value.size(1);
  for (const auto& tensor : {query, key, value}) fits = fits && tensor.stride(-1) == 1;
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, fits ? kFlash : kMath);
}

/// native_batch_norm updates the running statistics without saying so in its schema; the variant that
/// says so has them brought where they belong.
void run_batch_norm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const auto is_given = [&](std::size_t i) {
    const auto& value = torch::jit::peek(*stack, i, count);
    return value.isTensor() && value.toTensor().defined();
  };
  const bool has_statistics = is_given(3) && is_given(4);
  TESSERA_CHECK(has_statistics || (!is_given(3) && !is_given(4)), op.operator_name(),
                ": only one of running_mean and running_var given; pass both or none");
  if (!has_statistics) stack->erase(stack->end() - 5, stack->end() - 3);
  const auto legit = c10::Dispatcher::singleton().findSchemaOrThrow(
      "aten::_native_batch_norm_legit", has_statistics ? "" : "no_stats");
  run_distributed(legit, stack);
}

/// new_empty_strided. Autograd makes the gradient of a tensor that was written through a view so, and
/// then writes to a view of it: whole, it can be viewed in any way. Elsewhere it is like the argument.
void run_new_empty_strided(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const std::size_t count = op.schema().arguments().size();
  const at::Tensor self = torch::jit::peek(*stack, 0, count).toTensor();
  const auto sizes = torch::jit::peek(*stack, 1, count).toIntVector();
  const GlobalStrides strides{.strides = torch::jit::peek(*stack, 2, count).toIntVector()};
  const auto dtype = torch::jit::peek(*stack, 3, count).toOptional<at::ScalarType>();
  const auto& meta = *dtensor_meta(self);
  const auto node = torch::autograd::get_current_node();
  const bool is_viewed =
      node != nullptr && dynamic_cast<const torch::autograd::CopySlices*>(node.get()) != nullptr;
  Placements placements(static_cast<std::size_t>(meta.mesh().ndim()), Replicate());
  if (!is_viewed && self.sizes() == at::IntArrayRef(sizes)) {
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

void add_geometry_kernels(KernelTable& table) {
  table.emplace("resize", &run_resize);
  table.emplace("_fused_sdp_choice", &run_attention_choice);
  table.emplace("native_batch_norm", &run_batch_norm);
  table.emplace("new_empty_strided", &run_new_empty_strided);
}

}  // namespace tessera::detail
