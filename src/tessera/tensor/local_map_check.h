#pragma once

#include <cstddef>
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

/// Returns the global shape of an output, which all ranks tell each other; see `global_shape`.
[[nodiscard]] Shape exchanged_shape(std::size_t index, const at::Tensor& local,
                                    const DeviceMesh& mesh, const Placements& placements,
                                    const FromLocalOptions& options);

/// An output, and how it is placed.
struct CheckedOutput {
  std::size_t index;
  const at::Tensor* local;
  const Placements* placements;
};

/// Compares, bit by bit, what the ranks hold of outputs that are declared to be copies. Throws
/// `InvalidArgument` on all ranks, which names those that differ.
void compare_copies(const std::vector<CheckedOutput>& outputs, const DeviceMesh& mesh);

}  // namespace tessera::detail
