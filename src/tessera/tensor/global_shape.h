#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/layout.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::detail {

/// What one rank holds of a tensor, as ranks tell each other.
struct PartRecord {
  at::ScalarType dtype = at::ScalarType::Undefined;
  Shape shape;
  bool operator==(const PartRecord&) const = default;
};
/// `f32[2,3]`.
std::ostream& operator<<(std::ostream& os, const PartRecord& part);

/// Returns what all ranks of the mesh, in its order, hold of some tensors: at least one, and as many on
/// every rank. One `all_gather_into_tensor` of a few numbers.
[[nodiscard]] std::vector<std::vector<PartRecord>> gather_parts(
    const std::vector<at::Tensor>& locals, const DeviceMesh& mesh);

/// Returns the global shape of which the ranks, in the mesh's order, hold `parts`. Throws
/// `InvalidArgument` that names `function` when they fit to none, or not to the `given` one.
[[nodiscard]] Shape shape_of_parts(const std::string& function,
                                   const std::vector<PartRecord>& parts, const DeviceMesh& mesh,
                                   const Placements& placements,
                                   const std::optional<Shape>& given = {});

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
