#include "tessera/tensor/factories.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include "tessera/comm/redistribute_local.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dispatch.h"
#include "tessera/tensor/dtensor_meta.h"

namespace tessera {
namespace {

Placements or_replicated(const Placements& placements, const DeviceMesh& mesh) {
  if (!placements.empty()) return placements;
  return Placements(static_cast<std::size_t>(mesh.ndim()), Replicate());
}

at::TensorOptions local_options(const at::TensorOptions& options, const DeviceMesh& mesh) {
  return options.device(at::Device(mesh.device_type())).requires_grad(false);
}

/// The DTensor of uninitialised memory, without gradients.
at::Tensor make_empty(const char* function, const std::vector<std::int64_t>& sizes,
                      const DeviceMesh& mesh, const Placements& placements,
                      const at::TensorOptions& options) {
  detail::register_dispatch();
  const Layout layout =
      detail::checked_layout(function, mesh, or_replicated(placements, mesh), sizes);
  const auto position = mesh.shape().position_of(mesh.world().rank());
  const Shape local = position ? layout.local_shape(*position) : Shape{0};
  return detail::make_dtensor(at::empty(local, local_options(options, mesh)), mesh, layout);
}

/// Fills a new DTensor by an operation in place. Where it is Partial, the whole is filled and then made
/// contributions, which takes no communication.
template <typename Fill>
at::Tensor make_filled(const char* function, const std::vector<std::int64_t>& sizes,
                       const DeviceMesh& mesh, const Placements& placements,
                       const at::TensorOptions& options, const Fill& fill) {
  const auto made = make_empty(function, sizes, mesh, placements, options);
  const Layout& layout = layout_of(made);
  const at::NoGradGuard no_history;
  const Layout filled = detail::gradient_layout(layout);
  at::Tensor result = filled == layout
                          ? made
                          : detail::make_dtensor(detail::dtensor_meta(made)->local(), mesh, filled);
  fill(result);
  result = detail::move(result, mesh, layout);
  if (options.requires_grad()) result.requires_grad_(true);
  return result;
}

}  // namespace

at::Tensor zeros(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                 const Placements& placements, const at::TensorOptions& options) {
  return make_filled("zeros", sizes, mesh, placements, options,
                     [](at::Tensor& tensor) { tensor.zero_(); });
}

at::Tensor ones(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                const Placements& placements, const at::TensorOptions& options) {
  return make_filled("ones", sizes, mesh, placements, options,
                     [](at::Tensor& tensor) { tensor.fill_(1); });
}

at::Tensor empty(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                 const Placements& placements, const at::TensorOptions& options) {
  return make_filled("empty", sizes, mesh, placements, options, [](at::Tensor&) {});
}

at::Tensor full(const std::vector<std::int64_t>& sizes, const at::Scalar& value,
                const DeviceMesh& mesh, const Placements& placements,
                const at::TensorOptions& options) {
  // The dtype follows from the value, as in libtorch.
  const auto like = options.has_dtype() ? options : at::full({}, value, options).options();
  return make_filled("full", sizes, mesh, placements, options.dtype(like.dtype()),
                     [&](at::Tensor& t) { t.fill_(value); });
}

at::Tensor arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                  const DeviceMesh& mesh, const Placements& placements,
                  const at::TensorOptions& options) {
  detail::register_dispatch();
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor whole = at::arange(start, end, step, local_options(options, mesh));
  const Layout layout =
      detail::checked_layout("arange", mesh, or_replicated(placements, mesh), whole.sizes().vec());
  const Layout from(mesh.shape(), Placements(layout.placements().size(), Replicate()),
                    layout.shape());
  const bool is_inside = mesh.shape().contains(mesh.world().rank());
  const at::Tensor local = is_inside ? redistribute_local(whole, from, layout, mesh.world()).clone()
                                     : detail::outside_local(whole);
  auto result = detail::make_dtensor(local, mesh, layout);
  if (options.requires_grad()) result.requires_grad_(true);
  return result;
}

at::Tensor arange(const at::Scalar& end, const DeviceMesh& mesh, const Placements& placements,
                  const at::TensorOptions& options) {
  return arange(0, end, 1, mesh, placements, options);
}

at::Tensor rand(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                const Placements& placements, const at::TensorOptions& options) {
  return make_filled("rand", sizes, mesh, placements, options,
                     [](at::Tensor& tensor) { tensor.uniform_(0, 1); });
}

at::Tensor randn(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                 const Placements& placements, const at::TensorOptions& options) {
  return make_filled("randn", sizes, mesh, placements, options,
                     [](at::Tensor& tensor) { tensor.normal_(0, 1); });
}

}  // namespace tessera
