#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/layout.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

namespace tessera::detail {

/// Throws `InvalidArgument` for `out_placements` that no tensor on the mesh can have.
void check_placements(const DeviceMesh& mesh, const Placements& placements);

/// Throws `InvalidArgument` when a leaf of the result is not what its entry (null for none) says, or
/// cannot be so.
void check_output(std::size_t index, const MappedLeaf& leaf, const LeafPlacements* entry,
                  const DeviceMesh& mesh);

/// An output whose layout the ranks find together.
struct AskedOutput {
  std::size_t index;
  const at::Tensor* local;
  const Placements* placements;
  /// The global shape that it must have; null for any.
  const Shape* shape;
};
using IndexedLayouts = std::vector<std::pair<std::size_t, Layout>>;

/// Returns the layouts of outputs by their index, after all ranks told each other what they hold, in
/// one `all_gather_into_tensor`. Throws `InvalidArgument` on all ranks when parts do not fit together.
[[nodiscard]] IndexedLayouts layouts_of_parts(const std::vector<AskedOutput>& asked,
                                              const DeviceMesh& mesh);

/// The same in one `all_gather_object`, which compares everything: the leaves, and bit by bit what is
/// declared to be copies. `problem` is what this rank found wrong with its own; all ranks throw then,
/// and `asked` is not looked at.
[[nodiscard]] IndexedLayouts compare_outputs(const MappedLeaves& outputs,
                                             const std::vector<AskedOutput>& asked,
                                             const std::string& problem, const DeviceMesh& mesh);

}  // namespace tessera::detail
