#include "tessera/nn/data_parallel.h"

#include "tessera/nn/module_tensors.h"
#include "tessera/nn/replicate_plain.h"

namespace tessera::nn {

void data_parallel(torch::nn::Module& module, const DeviceMesh& mesh,
                   const GradientSyncOptions& options) {
  detail::check_one_mesh("data_parallel", module, mesh);
  detail::replicate_plain(module, mesh);
  sync_gradients(detail::parameters_of(module), options);
}

}  // namespace tessera::nn
