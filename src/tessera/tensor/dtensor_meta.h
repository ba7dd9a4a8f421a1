#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/comm/pending_tensor.h"
#include "tessera/layout/layout.h"
#include "tessera/tensor/copied_view.h"

namespace tessera::detail {

/// What makes a tensor a DTensor: the local part, and the layout that says which part it is.
///
/// Shared by tensors that are the same one to libtorch (`detach`, `set_data`), and never changed, but
/// for what a view that is a copy has seen of the tensor that it views.
class DTensorMeta final : public WrappedMeta {
 public:
  DTensorMeta(at::Tensor local, DeviceMesh mesh, Layout layout)
      : local_(std::move(local)), mesh_(std::move(mesh)), layout_(std::move(layout)) {}

  [[nodiscard]] Kind kind() const override { return Kind::distributed; }

  /// A plain tensor without history; waits for one that is on its way.
  [[nodiscard]] const at::Tensor& local() const {
    settle(local_);
    return local_;
  }
  [[nodiscard]] const at::Tensor& local_or_pending() const { return local_; }
  [[nodiscard]] const DeviceMesh& mesh() const { return mesh_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  /// False on ranks that are not part of the mesh.
  [[nodiscard]] bool is_inside() const { return mesh_.shape().contains(mesh_.world().rank()); }

  /// The mesh dims, one bit each, along which the tensor is whole when it meets others: that of a
  /// fully sharded parameter. See Note [Gathered on use] in op_call.cpp.
  [[nodiscard]] std::uint64_t gathered_dims() const { return gathered_dims_; }
  void set_gathered_dims(std::uint64_t dims) { gathered_dims_ = dims; }

  /// Set for the result of a view op that does not share memory with what it views; null otherwise.
  /// See Note [Views that are copies].
  [[nodiscard]] CopiedView* copied_view() { return view_ ? &*view_ : nullptr; }
  [[nodiscard]] bool is_copied_view() const { return view_.has_value(); }
  void set_copied_view(CopiedView view) { view_ = std::move(view); }
  /// For such a view, when its values are taken anew.
  void replace_local(at::Tensor local) { local_ = std::move(local); }

 private:
  at::Tensor local_;
  DeviceMesh mesh_;
  Layout layout_;
  std::uint64_t gathered_dims_ = 0;
  std::optional<CopiedView> view_;
};

/// Returns the meta of a DTensor; null for plain, pending and undefined tensors.
[[nodiscard]] inline DTensorMeta* dtensor_meta(const at::Tensor& tensor) {
  auto* meta = wrapped_meta(tensor);
  return meta != nullptr && meta->kind() == WrappedMeta::Kind::distributed
             ? static_cast<DTensorMeta*>(meta)
             : nullptr;
}

/// The global geometry of a tensor. Equal on all ranks, whatever their local tensors look like, so
/// that libtorch's composite functions decide alike everywhere.
struct GlobalStrides {
  /// Empty for contiguous ones.
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
};

/// Returns the DTensor of a local part, which must have the layout's local shape and no history.
[[nodiscard]] at::Tensor make_dtensor(at::Tensor local, const DeviceMesh& mesh,
                                      const Layout& layout, const GlobalStrides& strides = {});

/// Returns what a rank outside of a mesh holds of its tensors.
[[nodiscard]] at::Tensor outside_local(const at::Tensor& like);

/// Returns `meta` of a tensor that must be a DTensor; `function` is named otherwise.
[[nodiscard]] DTensorMeta& checked_meta(const at::Tensor& tensor, const char* function);

}  // namespace tessera::detail
