#include "tessera/nn/replicate_plain.h"

#include <algorithm>

#include <torch/nn/module.h>

#include "tessera/base/check.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/in_place.h"

namespace tessera::nn::detail {

std::vector<at::Tensor> parameters_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> parameters;
  // A module that is registered twice, or a weight that two share, is met twice.
  for (const auto& parameter : module.parameters()) {
    const bool is_known =
        std::any_of(parameters.begin(), parameters.end(),
                    [&](const at::Tensor& other) { return other.is_same(parameter); });
    if (parameter.defined() && !is_known) parameters.push_back(parameter);
  }
  return parameters;
}

void replicate_plain(const char* function, const torch::nn::Module& module,
                     const DeviceMesh& mesh) {
  auto named = module.named_parameters().pairs();
  for (auto& buffer : module.named_buffers().pairs()) named.push_back(std::move(buffer));
  for (const auto& [name, tensor] : named) {
    TESSERA_CHECK(!is_dtensor(tensor) || mesh_of(tensor) == mesh, function, ": '", name, "' is on ",
                  mesh_of(tensor), ", not on ", mesh,
                  "; all parameters and buffers of a module must be on one mesh");
  }
  const Placements everywhere(static_cast<std::size_t>(mesh.ndim()), Replicate());
  for (const auto& [name, tensor] : named) {
    if (tensor.defined() && !is_dtensor(tensor)) distribute_in_place(tensor, mesh, everywhere);
  }
}

}  // namespace tessera::nn::detail
