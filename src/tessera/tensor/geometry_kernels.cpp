#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/accumulate.h>

#include "tessera/base/check.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {

namespace {

/// Gives a tensor the shape, the layout and the memory of a view of it.
void take_place(const at::Tensor& self, const at::Tensor& view) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(view.sizes(), view.strides(), view.storage_offset());
  // The tensor itself now, not a view of it any more. What it was a view of, it still is.
  const auto& meta = *dtensor_meta(view);
  auto taken =
      c10::make_intrusive<DTensorMeta>(meta.local_or_pending(), meta.mesh(), meta.layout());
  if (const auto* viewed = dtensor_meta(self)->copied_view()) {
    CopiedView own = *viewed;
    if (own.kind != CopiedView::Kind::unknown) own.kind = CopiedView::Kind::moved;
    own.own_geometry = geometry_of(self);
    taken->set_copied_view(std::move(own));
  }
  impl->set_backend_meta(std::move(taken));
}

}  // namespace

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
  take_place(self, torch::jit::pop(*stack).toTensor());
  torch::jit::push(*stack, self);
}

namespace {

/// resize_ to the present shape does nothing, and to as many elements makes a view; anything else has
/// no meaning for a layout.
void run_resize(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t count = op.schema().arguments().size();
  const at::Tensor self = torch::jit::peek(*stack, 0, count).toTensor();
  const auto sizes = torch::jit::peek(*stack, 1, count).toIntVector();
  const bool is_same = self.sizes() == at::IntArrayRef(sizes);
  TESSERA_CHECK(is_same || (self.is_contiguous() && c10::multiply_integers(sizes) == self.numel()),
                op.operator_name(), ": ", describe_tensor(self), " cannot be resized to [",
                joined(sizes, ","), "]; make a new DTensor of that shape, with tessera::empty for ",
                "example (only shapes of as many elements are allowed, of contiguous tensors)");
  if (!is_same) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    take_place(self, self.view(sizes));
  }
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

}  // namespace

void add_geometry_kernels(KernelTable& table) {
  table.emplace("resize", &run_resize);
  table.emplace("_fused_sdp_choice", &run_attention_choice);
}

}  // namespace tessera::detail
