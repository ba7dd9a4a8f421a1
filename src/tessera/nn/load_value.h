#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/nn/state.h"

namespace tessera::nn::detail {

/// Returns a value placed like `like`, on its mesh or as a whole plain tensor; the value itself when it
/// is so already.
[[nodiscard]] at::Tensor placed_like(const at::Tensor& like, const at::Tensor& value,
                                     const LoadStateOptions& options);

}  // namespace tessera::nn::detail
