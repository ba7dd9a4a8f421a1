#pragma once

#include <ATen/core/stack.h>

#include "tessera/tensor/op_traits.h"

namespace tessera::detail {

/// Note [Plain tensors in a backward pass]
///
/// The formulas of libtorch's derivatives make tensors from sizes and options alone: zeros into which
/// the gradient of `max` is scattered, for example. Those are plain, as nothing says otherwise, and
/// equal on all ranks. While a backward pass runs, plain arguments of an op on DTensors therefore
/// count as replicated; one that is written becomes a DTensor itself. Elsewhere they are an error,
/// unless an `ImplicitReplication` is there: then those count too that are only read and need no
/// gradient.
///
/// Replaces such arguments on the stack; does nothing where they are an error.
void adopt_plain_arguments(const OpTraits& traits, torch::jit::Stack& stack);

}  // namespace tessera::detail
