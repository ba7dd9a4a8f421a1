#include "tessera/tensor/dtensor.h"

#include <sstream>

#include <ATen/core/Formatting.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "tessera/base/check.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/global_shape.h"
#include "tessera/tensor/is_placed.h"
#include "tessera/tensor/op_call.h"
#include "tessera/tensor/part_gradient.h"

namespace tessera {

using detail::checked_meta;

namespace {

/// The layout that the gradients of the local parts form: as given, or as it is by default.
Layout gradient_of_part(const char* function, const DeviceMesh& mesh, const Layout& layout,
                        const std::optional<Placements>& given) {
  if (!given) return detail::gradient_layout(layout);
  const std::string what = concat(function, ": grad_placements");
  Layout gradient = detail::checked_layout(what.c_str(), mesh, *given, layout.shape());
  const auto why_not = detail::why_not_gradient_of_part(layout, gradient);
  TESSERA_CHECK(!why_not, what, ": the gradient of ", *why_not);
  return gradient;
}

}  // namespace

bool is_dtensor(const at::Tensor& tensor) { return detail::dtensor_meta(tensor) != nullptr; }

const Layout& layout_of(const at::Tensor& tensor) {
  return checked_meta(tensor, "layout_of").layout();
}

const Placements& placements_of(const at::Tensor& tensor) {
  return checked_meta(tensor, "placements_of").layout().placements();
}

const DeviceMesh& mesh_of(const at::Tensor& tensor) {
  return checked_meta(tensor, "mesh_of").mesh();
}

at::Tensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh,
                             const Placements& placements, const DistributeOptions& options) {
  constexpr const char* kName = "distribute_tensor";
  TESSERA_CHECK(tensor.defined(), kName, ": an undefined tensor given");
  const Layout layout = detail::checked_layout(kName, mesh, placements, tensor.sizes().vec());
  if (const auto* meta = detail::dtensor_meta(tensor)) {
    TESSERA_CHECK(meta->mesh() == mesh && meta->layout() == layout, kName,
                  ": Cannot distribute a DTensor placed ", meta->layout(), " to ", layout,
                  "; do you want to call `redistribute` instead?");
    return tensor;
  }
  detail::check_device(kName, tensor, mesh);
  TESSERA_CHECK(tensor.is_leaf(), kName,
                ": a tensor with history given, but only leaf tensors can be distributed; pass ",
                "tensor.detach(), or use from_local and redistribute to keep the history");
  detail::register_dispatch();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const World& world = mesh.world();
  const std::int64_t root = options.src_data_rank.value_or(0);
  TESSERA_CHECK(root >= 0 && root < mesh.size(), kName, ": src_data_rank ", root, " given for ",
                mesh, "; allowed are 0 to ", mesh.size() - 1);
  at::Tensor local;
  {
    const detail::CauseScope cause(kName);
    if (options.src_data_rank.has_value()) {
      const auto source = mesh.shape().rank_at(root);
      const Layout from(MeshShape({1}, {}, {source}), {Replicate()}, layout.shape());
      local = redistribute_local(tensor, from, layout, world);
    } else if (mesh.shape().contains(world.rank())) {
      const Layout from(mesh.shape(), Placements(placements.size(), Replicate()), layout.shape());
      local = redistribute_local(tensor, from, layout, world);
    }
  }
  if (!mesh.shape().contains(world.rank())) {
    local = detail::outside_local(tensor);
  } else if (local.is_alias_of(tensor)) {
    // The result must not change with what it was made from.
    local = local.clone(at::MemoryFormat::Contiguous);
  }
  auto result = detail::make_dtensor(std::move(local), mesh, layout);
  if (tensor.requires_grad()) result.requires_grad_(true);
  return result;
}

at::Tensor from_local(const at::Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                      const FromLocalOptions& options) {
  constexpr const char* kName = "from_local";
  TESSERA_CHECK(local.defined(), kName, ": an undefined tensor given");
  TESSERA_CHECK(!is_dtensor(local), kName,
                ": a DTensor given, but from_local only accepts torch.Tensor: a plain local part; "
                "use redistribute to place a DTensor otherwise");
  detail::check_device(kName, local, mesh);
  const Shape shape = options.shape.has_value() && !options.run_check
                          ? *options.shape
                          : detail::global_shape(local, mesh, placements, options);
  const Layout layout = detail::checked_layout(kName, mesh, placements, shape);
  detail::check_local_shape(kName, local, mesh, layout);
  const at::Tensor values =
      options.run_check ? detail::with_equal_replicas(local, mesh, layout) : at::Tensor();
  const Layout gradient = gradient_of_part(kName, mesh, layout, options.grad_placements);
  return detail::wrap_local(local, mesh, layout, gradient, values);
}

at::Tensor to_local(const at::Tensor& tensor, const ToLocalOptions& options) {
  const auto& meta = checked_meta(tensor, "to_local");
  const Layout gradient =
      gradient_of_part("to_local", meta.mesh(), meta.layout(), options.grad_placements);
  return detail::unwrap_local(tensor, gradient);
}

at::Tensor full_tensor(const at::Tensor& tensor, const ToLocalOptions& options) {
  const auto& meta = checked_meta(tensor, "full_tensor");
  const detail::CauseScope cause("full_tensor");
  const auto whole =
      redistribute(tensor, Placements(static_cast<std::size_t>(meta.mesh().ndim()), Replicate()));
  return to_local(whole, options);
}

at::Tensor redistribute(const at::Tensor& tensor, const Placements& placements,
                        const RedistributeOptions& options) {
  return redistribute(tensor, checked_meta(tensor, "redistribute").mesh(), placements, options);
}

at::Tensor redistribute(const at::Tensor& tensor, const DeviceMesh& mesh,
                        const Placements& placements, const RedistributeOptions& options) {
  constexpr const char* kName = "redistribute";
  const auto& meta = checked_meta(tensor, kName);
  const bool casts = options.forward_dtype || options.backward_dtype;
  if (!casts && detail::is_placed(meta, mesh, placements)) return tensor;
  const Layout layout = detail::checked_layout(kName, mesh, placements, meta.layout().shape());
  detail::check_destination(kName, meta, mesh);
  return detail::move(tensor, mesh, layout, options);
}

std::string to_string(const at::Tensor& tensor) {
  const auto& meta = checked_meta(tensor, "to_string");
  const at::Tensor& local = meta.local();
  std::ostringstream text;
  text << "DTensor " << detail::describe_tensor(tensor) << " on " << meta.layout().mesh()
       << ", rank " << meta.mesh().world().rank() << " holds [" << joined(local.sizes(), ",")
       << "]:\n";
  at::print(text, local, /*linesize=*/80);
  return text.str();
}

}  // namespace tessera
