#pragma once

#include <functional>
#include <string>

#include "tessera/comm/device_mesh.h"
#include "tessera/nn/hooks.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::nn {

/// Places the parameters and buffers of one module with `distribute_in_place`; called for every module
/// from the root (whose name is empty) down. What it leaves alone is replicated.
using PartitionFn =
    std::function<void(const std::string& name, torch::nn::Module& module, const DeviceMesh& mesh)>;
/// Changes what the module gets, for example from plain tensors to DTensors.
using InputFn =
    std::function<void(torch::nn::Module& module, TensorLeaves inputs, const DeviceMesh& mesh)>;
/// Changes what the module returns.
using OutputFn =
    std::function<void(torch::nn::Module& module, TensorLeaves outputs, const DeviceMesh& mesh)>;

/// Makes DTensors of all parameters and buffers of a module, in place: member variables, the module's
/// registry and optimizers that were made before see them.
///
///     distribute_module(*net, mesh, [](const std::string& name, torch::nn::Module& module,
///                                      const DeviceMesh& mesh) {
///       if (auto* linear = module.as<torch::nn::Linear>()) {
///         distribute_in_place(linear->weight, mesh, {Shard(0)});
///       }
///     });
///
/// Tensors that `partition_fn` leaves plain become `Replicate`, with the values of the first rank of
/// the mesh unless `options` say otherwise. Tensors that are members but not registered stay as they
/// are, because nobody knows of them: register them as buffers.
///
/// `input_fn` and `output_fn` run before and after the module's `forward`. They need a module that can
/// have hooks; without them any module will do, and its inputs are to be DTensors on the same mesh.
///
/// Throws `InvalidArgument`, before anything is changed, when the module was distributed before, when it
/// is not held by a holder or `std::shared_ptr`, and when it cannot have the hooks that are asked for.
void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const PartitionFn& partition_fn = {}, const InputFn& input_fn = {},
                       const OutputFn& output_fn = {}, const DistributeOptions& options = {});

}  // namespace tessera::nn
