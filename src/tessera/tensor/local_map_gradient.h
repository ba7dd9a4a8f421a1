#pragma once

#include <cstddef>
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/base/check.h"
#include "tessera/layout/layout.h"

namespace tessera::detail {

/// Some dims of a mesh, one bit each.
using MeshDims = std::uint64_t;
[[nodiscard]] inline MeshDims mesh_dim_bit(std::int64_t mesh_dim) {
  TESSERA_CHECK(mesh_dim < 64,
                "local_map: a mesh of more than 64 dims given; flatten some of them");
  return MeshDims{1} << mesh_dim;
}

/// Note [Gradients of parts]
///
/// Inside of a mapped function every rank has tensors of its own, and the loss is the sum of all
/// ranks' losses. With x_r being what rank r holds of X along a mesh dim, and g_r the gradient of
/// x_r, the loss changes by the sum of all <g_r, dx_r>, which must be <G, dX>:
///
///   - S: the dx_r are the parts of dX, so the g_r are those of G.
///   - R: every dx_r is dX, so the g_r add up to G: they are P(sum).
///   - P(sum): dX is the sum of the dx_r, so every g_r is G, R.
///   - P(avg): every g_r is G / n. They add up to G.
///   - P(min), P(max): G goes where the extreme is. They add up to G.
///
/// For outputs this says which g_r to hand out, for inputs which G to make of them.

/// Returns the layout that the gradients of an input's parts form.
[[nodiscard]] Layout input_gradient(const Layout& layout);

/// Throws `InvalidArgument` when the gradients of the parts of an input cannot form `gradient`.
void check_input_gradient(std::size_t index, const Layout& input, const Layout& gradient);

/// Returns the layout in which the gradient of an output is handed out. `redundant_dims` are the mesh
/// dims along which replicated outputs get it whole on every rank.
[[nodiscard]] Layout output_gradient(const Layout& layout, MeshDims redundant_dims);

/// Returns the mesh dims along which a tensor is replicated.
[[nodiscard]] MeshDims replicated_dims(const Layout& layout);

/// Return `local` so that its gradient is what the layouts above cannot say: a share of P(avg), and
/// an error for reductions that cannot be differentiated so.
[[nodiscard]] at::Tensor with_gradient_of_input(const at::Tensor& local, const Layout& layout);
[[nodiscard]] at::Tensor with_gradient_of_output(const at::Tensor& local, const Layout& layout);

}  // namespace tessera::detail
