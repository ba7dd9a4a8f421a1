#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/placement.h"
#include "tessera/nn/hooks.h"

namespace tessera::nn::detail {

/// What happens to one tensor where it enters or leaves a module, along one mesh dim.
struct Crossing {
  /// What a plain tensor is taken for; nothing: plain tensors pass as they are.
  std::optional<Placement> taken_for = {};
  /// How the tensor is placed behind the boundary; nothing: as it is.
  std::optional<Placement> brought_to = {};
  /// The size of the last dim of the whole tensor, where it is known: then a tensor that is cut along
  /// it need not be asked for on the other ranks.
  std::optional<std::int64_t> last_size = {};
};

/// Where tensors enter or leave a module.
struct Boundary {
  /// For messages: `RowwiseParallel of 'fc2'`.
  std::string name;
  DeviceMesh mesh;
  std::int64_t mesh_dim = 0;
  /// One per tensor. More tensors than crossings are an error, unless they are undefined.
  std::vector<Crossing> crossings;
  /// Hand on this rank's parts.
  bool makes_local = false;

  /// Takes tensors across, in place.
  void cross(TensorLeaves tensors) const;

 private:
  [[nodiscard]] at::Tensor cross_one(const at::Tensor& tensor, const Crossing& crossing) const;
  [[nodiscard]] at::Tensor distributed(const at::Tensor& tensor, const Crossing& crossing) const;
};

}  // namespace tessera::nn::detail
