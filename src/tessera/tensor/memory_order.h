#pragma once

#include "tessera/tensor/dtensor_meta.h"

namespace tessera::detail {

inline const GlobalStrides kContiguousStrides = {};

/// Returns `local` in the memory order that the global strides state, copied if it lies otherwise:
/// what libtorch concludes from the global strides then holds for the local part.
[[nodiscard]] at::Tensor in_memory_order(const at::Tensor& local, const GlobalStrides& strides);

/// The strides of a replicated tensor, which are also the global ones.
[[nodiscard]] GlobalStrides strides_of(const at::Tensor& tensor);

}  // namespace tessera::detail
