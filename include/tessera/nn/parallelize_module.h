#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/device_mesh.h"
#include "tessera/nn/hooks.h"
#include "tessera/nn/parallel_style.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::nn {

/// Which modules work in which style. A key is a path such as `layers.0.fc1`, or a pattern: in each
/// part between dots, `*` stands for any characters, `?` for one, `[ab]` and `[0-3]` for one of these;
/// the part `**` stands for any number of parts. The empty key is the module itself. Styles are
/// applied in order.
using ParallelPlan = std::vector<std::pair<std::string, ParallelStyle>>;

/// What passes between modules.
enum class Activations : std::uint8_t {
  /// Plain tensors, as PyTorch does it: hooks at the modules of the plan make DTensors of what comes
  /// in, and plain tensors of what goes out. Parameters of other modules stay plain.
  plain,
  /// DTensors. The first input is one, and so is everything that is computed from it: every operation
  /// finds the layouts that move the fewest bytes. Only parameters are placed, so the modules need no
  /// hooks, except where a style states layouts. Parameters and buffers of other modules are
  /// replicated over the mesh.
  distributed,
};

struct ParallelizeOptions {
  Activations activations = Activations::plain;
  /// The mesh dim along which the styles work; may be left out for a mesh that has only one. Along
  /// the others, parameters are replicated, and activations stay placed as they are. Needs
  /// `Activations::distributed` on a mesh of several dims.
  std::optional<std::string> mesh_dim = {};
  /// Where parameters get their values from; see `DistributeOptions`.
  std::optional<std::int64_t> src_data_rank = 0;
};

/// Makes the modules of a plan work in parallel over a mesh, in place. All ranks of the mesh call it
/// with the same module and plan.
///
///     parallelize_module(*net, mesh["tp"], {{"layers.*.fc1", ColwiseParallel{}},
///                                           {"layers.*.fc2", RowwiseParallel{}}});
///
/// Everything is checked before anything is changed. Throws `InvalidArgument` for a pattern that
/// matches no module (near paths are listed); a style that a module does not fit (`ColwiseParallel`
/// and `RowwiseParallel` are for Linear and Embedding); two styles that place the same parameters;
/// parameters that are DTensors already; a module that would need a hook and cannot have one (the
/// message says how to change the member); lists of layouts of different lengths; a mesh dim that
/// does not exist.
void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                        const ParallelizeOptions& options = {});
/// The same for the module itself.
void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh,
                        const ParallelStyle& style, const ParallelizeOptions& options = {});

}  // namespace tessera::nn
