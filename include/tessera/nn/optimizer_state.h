#pragma once

#include "tessera/nn/state.h"

namespace torch::optim {
class Optimizer;
}

namespace tessera::nn {

/// \file
/// The state of libtorch's optimizers Adam, AdamW, SGD, RMSprop and Adagrad, by names: the parameter's
/// name in a module, then the field's, `fc1.weight.exp_avg`. Numbers of steps are plain int64 tensors
/// without dims. Optimizers make their state like the parameters, so for DTensors it is placed like them.
///
/// All throw `InvalidArgument` for other optimizers, and for parameters that are not the module's.

/// Returns the state as it is, DTensors or plain. The tensors share memory with the optimizer. Empty
/// before the first step.
[[nodiscard]] StateDict optimizer_state_dict(torch::optim::Optimizer& optimizer,
                                             torch::nn::Module& module);

/// Returns the state as whole plain tensors on every rank, which share no memory with the optimizer. All
/// ranks of the meshes must call it.
[[nodiscard]] StateDict full_optimizer_state_dict(torch::optim::Optimizer& optimizer,
                                                  torch::nn::Module& module);

/// Puts a state into an optimizer, placed like the parameters: whole plain tensors, each rank taking its
/// part, and DTensors, which are redistributed. An optimizer that has made no step yet gets its state so.
///
/// Throws `InvalidArgument`, before anything is changed, that lists tensors whose shapes are not their
/// parameter's, and names that are none of the optimizer's with near ones.
void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, torch::nn::Module& module,
                               const StateDict& state, const LoadStateOptions& options = {});

/// Places the state of an optimizer like its parameters, in place: for one that has made steps before
/// the parameters became DTensors, and for Adagrad, which makes its state when it is made. What is placed
/// so already stays as it is.
void distribute_optimizer_state(torch::optim::Optimizer& optimizer);

}  // namespace tessera::nn
