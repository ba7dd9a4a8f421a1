#include "tessera/nn/replicate_plain.h"

#include "tessera/base/check.h"
#include "tessera/nn/module_tensors.h"
#include "tessera/tensor/in_place.h"

namespace tessera::nn::detail {

void replicate_plain(torch::nn::Module& module, const DeviceMesh& mesh,
                     const DistributeOptions& options) {
  const Placements everywhere(static_cast<std::size_t>(mesh.ndim()), Replicate());
  for (const auto& own : all_tensors(module)) {
    if (!is_dtensor(own.tensor)) distribute_in_place(own.tensor, mesh, everywhere, options);
  }
}

void check_one_mesh(const char* function, torch::nn::Module& module, const DeviceMesh& mesh) {
  for (const auto& own : all_tensors(module)) {
    TESSERA_CHECK(!is_dtensor(own.tensor) || mesh_of(own.tensor) == mesh, function, ": '", own.name,
                  "' is on ", mesh_of(own.tensor), ", not on ", mesh,
                  "; all parameters and buffers of a module must be on one mesh");
  }
}

}  // namespace tessera::nn::detail
