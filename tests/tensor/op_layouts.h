#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "support/random_layout.h"
#include "tessera/comm/device_mesh.h"

namespace tessera::test {

/// How one argument of a case becomes a DTensor.
struct ArgumentLayout {
  Placements placements;
  /// The tensor in memory is a transposed one, so that its strides are not ascending.
  bool is_transposed = false;
  /// The local part is not contiguous.
  bool is_scattered = false;
  /// Makes the contributions of Partial differ from case to case.
  std::int64_t salt = 0;
};

/// Returns the meshes that cases on so many ranks use, of one and two dims.
[[nodiscard]] std::vector<std::vector<std::int64_t>> mesh_sizes(std::int64_t ranks);

[[nodiscard]] ArgumentLayout random_argument_layout(Random& random, const at::Tensor& tensor,
                                                    std::int64_t mesh_ndim);

/// Returns the DTensor of a plain tensor that all ranks have. For Partial, ranks get different
/// contributions whose reduction is the tensor. Nothing is communicated.
[[nodiscard]] at::Tensor placed(const at::Tensor& tensor, const DeviceMesh& mesh,
                                const ArgumentLayout& layout);

}  // namespace tessera::test
