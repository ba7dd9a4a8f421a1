#pragma once

#include "tessera/comm/device_mesh.h"
#include "tessera/tensor/dtensor.h"

namespace torch::nn {
class Module;
}

namespace tessera::nn::detail {

/// Makes DTensors of all parameters and buffers of a module that are plain, replicated on `mesh`.
void replicate_plain(torch::nn::Module& module, const DeviceMesh& mesh,
                     const DistributeOptions& options = {});

/// Throws `InvalidArgument` that names `function` when a parameter or buffer is a DTensor on another
/// mesh.
void check_one_mesh(const char* function, torch::nn::Module& module, const DeviceMesh& mesh);

}  // namespace tessera::nn::detail
