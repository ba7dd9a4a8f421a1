#include "tessera/nn/module_tensors.h"

#include <algorithm>

#include "tessera/nn/module_paths.h"

namespace tessera::nn::detail {

std::vector<NamedTensor> own_tensors(torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (item.value().defined()) tensors.push_back({item.key(), item.value(), false});
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (item.value().defined()) tensors.push_back({item.key(), item.value(), true});
  }
  return tensors;
}

std::vector<NamedTensor> all_tensors(torch::nn::Module& root) {
  std::vector<NamedTensor> tensors;
  for (const auto& place : modules_below(root)) {
    for (auto& own : own_tensors(*place.module)) {
      tensors.push_back({joined_path(place.path, own.name), own.tensor, own.is_buffer});
    }
  }
  return tensors;
}

std::vector<at::Tensor> parameters_of(const torch::nn::Module& root) {
  std::vector<at::Tensor> parameters;
  // A module that is registered twice, or a weight that two share, is met twice.
  for (const auto& parameter : root.parameters()) {
    const bool is_known =
        std::any_of(parameters.begin(), parameters.end(),
                    [&](const at::Tensor& other) { return other.is_same(parameter); });
    if (parameter.defined() && !is_known) parameters.push_back(parameter);
  }
  return parameters;
}

}  // namespace tessera::nn::detail
