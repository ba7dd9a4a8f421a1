#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"

namespace torch::nn {
class Module;
}

namespace tessera::nn::detail {

/// Returns the parameters of a module and all below it, each once.
[[nodiscard]] std::vector<at::Tensor> parameters_of(const torch::nn::Module& module);

/// Makes the plain parameters and buffers of a module DTensors, replicated on `mesh`.
///
/// Throws `InvalidArgument` that names `function` when one is a DTensor on another mesh; then nothing
/// has changed.
void replicate_plain(const char* function, const torch::nn::Module& module, const DeviceMesh& mesh);

}  // namespace tessera::nn::detail
