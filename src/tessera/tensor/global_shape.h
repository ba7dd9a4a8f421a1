#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/layout.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::detail {

/// Returns the global shape of which all ranks' `local` tensors are the parts. Communicates (one
/// `all_gather_into_tensor` of a few numbers over the mesh) if a mesh dim of more than one rank is
/// sharded, or if `options.run_check`.
///
/// Throws `InvalidArgument` on all ranks when the parts do not fit together, or not to
/// `options.shape`.
[[nodiscard]] Shape global_shape(const at::Tensor& local, const DeviceMesh& mesh,
                                 const Placements& placements, const FromLocalOptions& options);

/// Throws `InvalidArgument` unless `local` has the shape that the layout gives to this rank.
void check_local_shape(const char* function, const at::Tensor& local, const DeviceMesh& mesh,
                       const Layout& layout);

/// Returns the values of `local` on the first rank along all replicated mesh dims, without history.
[[nodiscard]] at::Tensor with_equal_replicas(const at::Tensor& local, const DeviceMesh& mesh,
                                             const Layout& layout);

}  // namespace tessera::detail
