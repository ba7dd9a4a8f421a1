#pragma once

#include <ATen/core/stack.h>

namespace c10 {
class OperatorHandle;
}

namespace tessera::detail {

/// Makes libtorch call us for every op on a DTensor. Called by whatever makes the first one; later
/// calls do nothing.
void register_dispatch();

/// Carries an op out on DTensors by its kernel, its rule or the fallback; below autograd.
void run_distributed(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// The same without kernels: what a kernel calls that has nothing to add.
void run_planned(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace tessera::detail
