#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/nn/boundary.h"
#include "tessera/nn/module_paths.h"
#include "tessera/nn/parallelize_module.h"

namespace tessera::nn::detail {

/// A parameter or buffer to be placed.
struct PlacedTensor {
  std::string name;
  at::Tensor tensor;
  Placement placement;
};

/// What a style does to one module.
struct StyleActions {
  ModulePlace place;
  std::vector<PlacedTensor> tensors = {};
  std::optional<Boundary> before = {};
  std::optional<Boundary> after = {};
};

/// Returns what a style does to a module, whose mesh dim is known. Changes nothing.
///
/// Throws `InvalidArgument` when the style is not for such a module, when it needs a hook that the
/// module cannot have, and when it is put together wrongly.
[[nodiscard]] StyleActions actions_of(const ParallelStyle& style, const ModulePlace& place,
                                      const DeviceMesh& mesh, std::int64_t mesh_dim,
                                      Activations activations);

}  // namespace tessera::nn::detail
