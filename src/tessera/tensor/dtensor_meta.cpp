#include "tessera/tensor/dtensor_meta.h"

#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include "tessera/base/check.h"

namespace tessera::detail {
namespace {

// What asking for a DTensor's memory throws. Fifteen characters are what a string holds without
// allocating, and every DTensor gets two copies of it.
constexpr const char* kNoMemory = "use to_local(x)";

}  // namespace

at::Tensor make_dtensor(at::Tensor local, const DeviceMesh& mesh, const Layout& layout,
                        const GlobalStrides& strides) {
  // Autocast goes by the local device's own key.
  const auto keys =
      c10::DispatchKeySet({c10::DispatchKey::PrivateUse2, c10::DispatchKey::AutogradPrivateUse2}) |
      (local.key_set() & c10::autocast_dispatch_keyset);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(keys, local.dtype(), local.device());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->release_storage_and_set_meta_custom_data_ptr_error_msg_(kNoMemory);
  if (strides.strides.empty()) {
    impl->set_sizes_contiguous(layout.shape());
  } else {
    impl->set_sizes_and_strides(layout.shape(), strides.strides);
  }
  if (strides.offset != 0) impl->set_storage_offset(strides.offset);
  impl->set_backend_meta(c10::make_intrusive<DTensorMeta>(std::move(local), mesh, layout));
  return tensor;
}

at::Tensor outside_local(const at::Tensor& like) { return at::empty({0}, like.options()); }

DTensorMeta& checked_meta(const at::Tensor& tensor, const char* function) {
  auto* meta = dtensor_meta(tensor);
  TESSERA_CHECK(
      meta != nullptr, function, ": ", tensor.defined() ? "a plain" : "an undefined",
      " tensor given, a DTensor is needed; make one with distribute_tensor or from_local");
  return *meta;
}

}  // namespace tessera::detail
