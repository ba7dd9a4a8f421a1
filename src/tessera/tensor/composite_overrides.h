#pragma once

namespace torch {
class Library;
}

namespace tessera::detail {

/// Replaces the few composite functions of libtorch that read memory of tensors because those are on
/// the CPU, by ones that reach the same results through operations.
void override_composites();

/// Adds the recurrent networks to a library of kernels; a part of `override_composites`.
void override_recurrent(torch::Library& library);

}  // namespace tessera::detail
