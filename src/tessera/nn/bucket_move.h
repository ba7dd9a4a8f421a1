#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/layout/layout.h"

namespace tessera::nn::detail {

/// Starts to bring DTensors to layouts on their own meshes, in few messages, and returns them in the
/// same order; without history. The values may still be on their way.
///
/// Sums over the same mesh dims are reduced together: by one coalesced all_reduce, or, for shards of
/// the same dim, by one coalesced reduce_scatter. The others move one by one.
[[nodiscard]] std::vector<at::Tensor> move_together(const std::vector<at::Tensor>& tensors,
                                                    const std::vector<Layout>& targets);

}  // namespace tessera::nn::detail
