#pragma once

#include <cstdint>

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include "tessera/tensor/dtensor.h"

namespace tessera::test {

/// A network of two layers with sizes that divide by few numbers of ranks.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl() {
    // The same values everywhere without touching libtorch's generator.
    const torch::NoGradGuard no_history;
    std::int64_t number = 0;
    for (auto& parameter : parameters()) {
      const auto index = torch::arange(parameter.numel(), torch::kDouble) + ++number;
      parameter.copy_((index * 0.7).sin().reshape(parameter.sizes()));
    }
    to(torch::kDouble);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return last->forward(norm->forward(torch::gelu(first->forward(x)))) * scale;
  }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(5, 7));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({7})));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(7, 3));
  torch::Tensor scale = register_parameter("scale", torch::ones({}));
  torch::Tensor seen = register_buffer("seen", torch::zeros({2}));
};
TORCH_MODULE(SmallNet);

/// Numbers that differ from row to row.
inline torch::Tensor counted(at::IntArrayRef sizes) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return (torch::arange(count, torch::kDouble) * 0.37).sin().reshape(sizes);
}

/// A batch that all ranks know, cut over the first mesh dim.
inline torch::Tensor batch_on(const DeviceMesh& mesh, const torch::Tensor& batch) {
  Placements placements(static_cast<std::size_t>(mesh.ndim()), Replicate());
  placements[0] = Shard(0);
  return distribute_tensor(batch, mesh, placements, {.src_data_rank = std::nullopt});
}

inline torch::Tensor loss_of(const torch::Tensor& y) { return y.square().mean(); }

}  // namespace tessera::test
