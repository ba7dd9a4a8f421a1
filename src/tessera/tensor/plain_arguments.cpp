#include "tessera/tensor/plain_arguments.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/graph_task.h>

#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/history.h"
#include "tessera/tensor/implicit_replication.h"
#include "tessera/tensor/memory_order.h"

namespace tessera::detail {
namespace {

/// The mesh of the first DTensor on the stack, in lists too.
const DeviceMesh* mesh_on(const torch::jit::Stack& stack, std::size_t first) {
  const auto mesh_of_value = [](const c10::IValue& value) -> const DeviceMesh* {
    const auto* meta = value.isTensor() ? dtensor_meta(value.toTensor()) : nullptr;
    return meta == nullptr ? nullptr : &meta->mesh();
  };
  for (std::size_t i = first; i < stack.size(); ++i) {
    if (const auto* mesh = mesh_of_value(stack[i])) return mesh;
    if (!stack[i].isList()) continue;
    for (const auto& element : stack[i].toListRef()) {
      if (const auto* mesh = mesh_of_value(element)) return mesh;
    }
  }
  return nullptr;
}

bool is_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

bool is_adopted(const at::Tensor& tensor, bool is_written) {
  if (!tensor.defined() || dtensor_meta(tensor) != nullptr) return false;
  if (!is_backward() && (is_written || needs_history(tensor))) return false;
  return is_written || tensor.numel() != 1 || tensor._is_zerotensor();
}

at::Tensor adopt(const at::Tensor& tensor, const DeviceMesh& mesh, bool is_written) {
  if (!is_adopted(tensor, is_written)) return tensor;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool is_inside = mesh.shape().contains(mesh.world().rank());
  const Layout layout(mesh.shape(), Placements(static_cast<std::size_t>(mesh.ndim()), Replicate()),
                      tensor.sizes().vec());
  at::Tensor local =
      tensor._is_zerotensor() ? at::zeros(tensor.sizes(), tensor.options()) : tensor.detach();
  const GlobalStrides strides = strides_of(local);
  if (!is_inside) local = outside_local(local);
  auto result = make_dtensor(std::move(local), mesh, layout, strides);
  if (!is_written) return result;
  tensor.unsafeGetTensorImpl()->shallow_copy_from(result.getIntrusivePtr());
  return tensor;
}

}  // namespace

void adopt_plain_arguments(const OpTraits& traits, torch::jit::Stack& stack) {
  if (!is_backward() && !ImplicitReplication::is_enabled()) return;
  const std::size_t first = stack.size() - traits.arguments.size();
  const DeviceMesh* found = mesh_on(stack, first);
  if (found == nullptr) return;
  const DeviceMesh mesh = *found;
  for (std::size_t i = 0; i < traits.arguments.size(); ++i) {
    using Kind = OpTraits::ArgumentKind;
    auto& value = stack[first + i];
    const auto& argument = traits.arguments[i];
    if (argument.kind == Kind::tensor && value.isTensor()) {
      if (is_adopted(value.toTensor(), argument.is_written)) {
        value = adopt(value.toTensor(), mesh, argument.is_written);
      }
    } else if (argument.kind == Kind::tensor_list && value.isTensorList()) {
      auto list = value.toTensorList();
      for (std::size_t e = 0; e < list.size(); ++e) {
        list[e] = adopt(list[e], mesh, argument.is_written);
      }
    } else if (argument.kind == Kind::optional_tensor_list && value.isList()) {
      auto list = value.toOptionalTensorList();
      for (std::size_t e = 0; e < list.size(); ++e) {
        const std::optional<at::Tensor> element = list[e];
        if (element.has_value())
          list[e] = std::optional(adopt(*element, mesh, argument.is_written));
      }
    }
  }
}

}  // namespace tessera::detail
