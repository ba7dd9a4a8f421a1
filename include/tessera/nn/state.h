#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/layout/layout.h"

namespace torch::nn {
class Module;
}

namespace tessera::nn {

/// Tensors by the names of a module's parameters and buffers, `layers.0.fc1.weight`. In the order of
/// the names, which is the same on all ranks.
using StateDict = std::map<std::string, at::Tensor>;

/// Returns the parameters and buffers as they are, DTensors or plain, without history. They share
/// memory with the module.
[[nodiscard]] StateDict state_dict(torch::nn::Module& module);

/// Returns them as whole plain tensors on every rank, which share no memory with the module. All ranks
/// of the meshes must call it; a tensor that is registered twice is gathered once.
[[nodiscard]] StateDict full_state_dict(torch::nn::Module& module);

/// What one rank holds of a parameter or buffer.
struct LocalTensor {
  /// A plain tensor that shares memory with the module.
  at::Tensor tensor;
  /// Which part of the whole it is; nothing for a plain tensor.
  std::optional<Layout> layout;
};

/// Returns this rank's parts of the parameters and buffers. Nothing is communicated.
[[nodiscard]] std::map<std::string, LocalTensor> local_state_dict(torch::nn::Module& module);

struct LoadStateOptions {
  /// Throw unless the names are exactly the module's.
  bool strict = true;
  /// The rank whose values are taken for DTensors, by its place in the mesh; the others pass tensors
  /// of the same shapes. Nothing means that all ranks pass equal values, and nothing is communicated.
  std::optional<std::int64_t> src_data_rank = {};
};

/// Names that did not fit, when they are allowed not to.
struct LoadStateReport {
  /// The module has them, the state does not.
  std::vector<std::string> missing;
  /// The other way round.
  std::vector<std::string> unexpected;
};

/// Copies a state into a module: whole plain tensors, as `full_state_dict` returns them, each rank
/// taking its part; and DTensors, which are redistributed. The module's tensors stay where and how they
/// are placed, and keep their dtypes.
///
/// Throws `InvalidArgument`, before anything is changed, that lists all tensors whose shapes differ and,
/// if `strict`, all missing and unexpected names with near ones.
LoadStateReport load_state_dict(torch::nn::Module& module, const StateDict& state,
                                const LoadStateOptions& options = {});

}  // namespace tessera::nn
