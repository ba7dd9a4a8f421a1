#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace tessera::nn::detail {

/// A parameter or buffer, and what it is called: `layers.0.fc1.weight`.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_buffer = false;
};

/// Returns the defined parameters and buffers of one module alone, parameters first.
[[nodiscard]] std::vector<NamedTensor> own_tensors(torch::nn::Module& module);

/// Returns those of a module and of all below it, parents first. A tensor that is registered twice
/// appears under both names.
[[nodiscard]] std::vector<NamedTensor> all_tensors(torch::nn::Module& root);

/// Returns the parameters of a module and of all below it, each once.
[[nodiscard]] std::vector<at::Tensor> parameters_of(const torch::nn::Module& root);

}  // namespace tessera::nn::detail
