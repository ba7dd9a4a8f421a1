#pragma once

#include "tessera/comm/device_mesh.h"
#include "tessera/nn/gradient_sync.h"

namespace torch::nn {
class Module;
}

namespace tessera::nn {

/// Makes a module work on batches that are spread over a mesh, with a copy of it on every rank.
///
///     data_parallel(*model, mesh);
///     auto x = distribute_tensor(batch, mesh, {Shard(0)}, {.src_data_rank = std::nullopt});
///     loss_of(model->forward(x)).backward();   // The loss of the whole batch, on every rank.
///     optimizer.step();
///
/// Parameters and buffers that are plain become DTensors, replicated along all mesh dims, with the
/// values of the mesh's first rank. Those that are DTensors already stay as they are, so a module
/// whose layers were spread along one mesh dim (`parallelize_module`) takes batches along another
/// one. Gradients are reduced in buckets during the backward pass: see `sync_gradients`.
///
/// The batch need not divide evenly. Optimizers are made afterwards, or before: they hold the same
/// parameters.
///
/// Throws `InvalidArgument` for parameters on another mesh, and as `sync_gradients` does.
void data_parallel(torch::nn::Module& module, const DeviceMesh& mesh,
                   const GradientSyncOptions& options = {});

}  // namespace tessera::nn
