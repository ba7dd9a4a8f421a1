#include "tessera/nn/module_tensors.h"

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

}  // namespace tessera::nn::detail
