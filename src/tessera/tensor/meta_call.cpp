#include "tessera/tensor/meta_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>

#include "tessera/tensor/result_shapes.h"

namespace tessera::detail {
namespace {

at::Tensor on_meta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  auto meta = at::empty_strided(tensor.sizes(), tensor.strides(),
                                tensor.options().device(at::kMeta).requires_grad(false));
  if (tensor.storage_offset() != 0) {
    meta.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return meta;
}

c10::IValue on_meta(const c10::IValue& value) {
  if (value.isTensor()) return on_meta(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const auto& element : value.toListRef()) list.push_back(on_meta(element.toTensor()));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& element : value.toListRef()) {
      list.push_back(element.isTensor() ? std::optional<at::Tensor>(on_meta(element.toTensor()))
                                        : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) return at::Device(at::kMeta);
  return value;
}

}  // namespace

std::optional<std::vector<at::Tensor>> run_on_meta(const OpCall& call) {
  if (auto results = stated_results(call)) return results;
  const auto& schema = *call.traits().schema;
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < call.traits().arguments.size(); ++i) {
    stack.push_back(on_meta(call.argument(i)));
  }
  try {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    op->callBoxed(&stack);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  std::vector<at::Tensor> results;
  for (const auto& value : stack) {
    if (value.isTensor()) results.push_back(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const auto& element : value.toListRef()) results.push_back(element.toTensor());
  }
  return results;
}

GlobalStrides strides_on_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.is_contiguous() && tensor.storage_offset() == 0)) return {};
  return {.strides = tensor.strides().vec(), .offset = tensor.storage_offset()};
}

}  // namespace tessera::detail
