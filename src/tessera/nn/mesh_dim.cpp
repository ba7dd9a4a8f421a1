#include "tessera/nn/mesh_dim.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera::nn::detail {

std::int64_t mesh_dim_named(const char* function, const DeviceMesh& mesh, const std::string& name) {
  const auto& names = mesh.shape().names();
  const auto found = std::find(names.begin(), names.end(), name);
  TESSERA_CHECK(found != names.end(), function, ": mesh dim \"", name, "\" given for ", mesh,
                names.empty() ? ", whose dims have no names: give them when the mesh is made"
                              : "; use one of its names");
  return found - names.begin();
}

}  // namespace tessera::nn::detail
