#include "tessera/tensor/conversion.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/base/check.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/dtensor_meta.h"

namespace tessera::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What a backward pass needs to know of the forward one.
struct Memory : torch::CustomClassHolder {
  Memory(DeviceMesh on, Layout forward, Layout backward, RedistributeOptions how = {},
         at::ScalarType source = at::kFloat)
      : mesh(std::move(on)),
        layout(std::move(forward)),
        gradient(std::move(backward)),
        options(how),
        dtype(source) {}

  DeviceMesh mesh;
  Layout layout;
  Layout gradient;
  RedistributeOptions options;
  at::ScalarType dtype;
};
using MemoryPtr = c10::intrusive_ptr<Memory>;

constexpr const char* kMemory = "memory";

void remember(AutogradContext* context, const MemoryPtr& memory) {
  context->saved_data[kMemory] = c10::IValue::make_capsule(memory);
}

c10::intrusive_ptr<Memory> remembered(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Memory>(context->saved_data[kMemory].toCapsule());
}

at::Tensor make_from_local(const at::Tensor& local, const Memory& memory) {
  register_dispatch();
  const bool is_inside = memory.mesh.shape().contains(memory.mesh.world().rank());
  const at::Tensor own = is_inside ? without_history(local) : outside_local(local);
  // Strides are global: a local part that lies otherwise is put in order when an op needs it.
  return make_dtensor(own, memory.mesh, memory.layout);
}

/// How the gradient of a gradient is placed: as the tensor itself, since the adjoint of the adjoint is
/// the map itself. Reductions are sums here, and parts of a sum that are gradients get all of it.
Layout second_gradient(const Memory& memory) {
  if (!memory.layout.has_partial()) return memory.layout;
  Placements placements = memory.layout.placements();
  for (std::size_t i = 0; i < placements.size(); ++i) {
    if (!is_partial(placements[i])) continue;
    const bool is_summed = is_partial(memory.gradient.placements()[i]);
    placements[i] = is_summed ? Placement(Replicate()) : Placement(Partial());
  }
  return Layout(memory.layout.mesh(), std::move(placements), memory.layout.shape());
}

/// The gradient layout of a source, seen from a gradient that is itself placed somehow.
at::Tensor gradient_of_move(const at::Tensor& gradient, const Memory& memory) {
  RedistributeOptions options{.async_op = memory.options.async_op};
  at::Tensor result = gradient;
  const auto sent = memory.options.backward_dtype.value_or(memory.dtype);
  if (result.scalar_type() != sent) result = result.to(sent);
  result = move(result, memory.mesh, memory.gradient, options);
  return result.scalar_type() != memory.dtype ? result.to(memory.dtype) : result;
}

at::Tensor make_moved(const at::Tensor& tensor, const DeviceMesh& mesh, const Layout& layout,
                      const RedistributeOptions& options) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& meta = *dtensor_meta(tensor);
  at::Tensor local = meta.local();
  if (options.forward_dtype && *options.forward_dtype != local.scalar_type()) {
    local = local.to(*options.forward_dtype);
  }
  at::Tensor moved = redistribute_local(local, meta.layout(), layout, mesh.world(),
                                        {.async_op = options.async_op});
  const std::int64_t rank = mesh.world().rank();
  if (!mesh.shape().contains(rank)) {
    moved = outside_local(local);
  } else if (moved.is_same(local)) {
    moved = without_history(moved);
  }
  return make_dtensor(std::move(moved), mesh, layout);
}

struct FromLocal : torch::autograd::Function<FromLocal> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& local,
                            const std::optional<at::Tensor>& values, const MemoryPtr& memory) {
    remember(context, memory);
    return make_from_local(values.value_or(local), *memory);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return variable_list(3);
    const auto memory = remembered(context);
    const CauseScope cause("backward of from_local");
    const auto gradient = move(gradients[0], memory->mesh, memory->gradient);
    return {unwrap_local(gradient, second_gradient(*memory)), at::Tensor(), at::Tensor()};
  }
};

struct ToLocal : torch::autograd::Function<ToLocal> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const MemoryPtr& memory) {
    remember(context, memory);
    return without_history(dtensor_meta(tensor)->local_or_pending());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor()};
    const auto memory = remembered(context);
    const at::Tensor& gradient = gradients[0];
    return {
        wrap_local(gradient.contiguous(), memory->mesh, memory->gradient, second_gradient(*memory)),
        at::Tensor()};
  }
};

struct Move : torch::autograd::Function<Move> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const DeviceMesh* mesh, const Layout* layout, const MemoryPtr& memory) {
    remember(context, memory);
    return make_moved(tensor, *mesh, *layout, memory->options);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined()) return variable_list(4);
    const auto memory = remembered(context);
    const CauseScope cause("backward of redistribute");
    return {gradient_of_move(gradients[0], *memory), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

bool needs_history(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.requires_grad();
}

}  // namespace

at::Tensor without_history(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      /*version_counter=*/tensor.unsafeGetTensorImpl()->version_counter(),
      /*allow_tensor_metadata_change=*/true));
}

Layout checked_layout(const char* function, const DeviceMesh& mesh, const Placements& placements,
                      const Shape& shape) {
  TESSERA_CHECK(static_cast<std::int64_t>(placements.size()) == mesh.ndim(), function, ": ",
                placements.size(), " placement(s) ", to_string(placements), " given for ", mesh,
                "; `placements` must have the same length as `device_mesh.ndim`: one per mesh dim");
  try {
    return Layout(mesh.shape(), placements, shape);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat(function, ": ", error.what()));
  }
}

Layout gradient_layout(const Layout& layout) {
  if (!layout.has_partial()) return layout;
  Placements placements = layout.placements();
  for (auto& placement : placements) {
    if (is_partial(placement)) placement = Replicate();
  }
  return Layout(layout.mesh(), std::move(placements), layout.shape());
}

void check_device(const char* function, const at::Tensor& tensor, const DeviceMesh& mesh) {
  const std::string type = c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true);
  TESSERA_CHECK(type == mesh.device_type(), function, ": a tensor on ", type, " given for ", mesh,
                "; move it to ", mesh.device_type(), " first, or make a mesh for ", type);
}

at::Tensor wrap_local(const at::Tensor& local, const DeviceMesh& mesh, const Layout& layout,
                      const Layout& gradient, const at::Tensor& values) {
  if (!needs_history(local)) {
    return make_from_local(values.defined() ? values : local, Memory(mesh, layout, gradient));
  }
  // Autograd takes no undefined tensors.
  const auto held = values.defined() ? std::optional(values) : std::nullopt;
  return FromLocal::apply(local, held, c10::make_intrusive<Memory>(mesh, layout, gradient));
}

at::Tensor unwrap_local(const at::Tensor& tensor, const Layout& gradient) {
  const auto& meta = *dtensor_meta(tensor);
  if (!needs_history(tensor)) return without_history(meta.local_or_pending());
  return ToLocal::apply(tensor, c10::make_intrusive<Memory>(meta.mesh(), meta.layout(), gradient));
}

at::Tensor move(const at::Tensor& tensor, const DeviceMesh& mesh, const Layout& layout,
                const RedistributeOptions& options) {
  const auto& meta = *dtensor_meta(tensor);
  const bool casts = options.forward_dtype && *options.forward_dtype != tensor.scalar_type();
  const bool stays = meta.layout() == layout && meta.mesh() == mesh;
  if (stays && !casts && !options.backward_dtype) return tensor;
  if (!needs_history(tensor)) return make_moved(tensor, mesh, layout, options);
  return Move::apply(
      tensor, &mesh, &layout,
      c10::make_intrusive<Memory>(meta.mesh(), layout, gradient_layout(meta.layout()), options,
                                  tensor.scalar_type()));
}

}  // namespace tessera::detail
