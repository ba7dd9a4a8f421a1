#pragma once

#include "tessera/comm/device_mesh.h"
#include "tessera/tensor/dtensor.h"

namespace torch::nn {
class Module;
}

namespace tessera::nn::detail {

/// Makes DTensors of all parameters and buffers that are plain, replicated over the mesh.
void replicate_rest(torch::nn::Module& module, const DeviceMesh& mesh,
                    const DistributeOptions& options);

}  // namespace tessera::nn::detail
