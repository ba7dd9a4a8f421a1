#pragma once

#include <cstdint>
#include <string>

#include "tessera/comm/device_mesh.h"

namespace tessera::nn::detail {

/// Returns the mesh dim of that name; throws `InvalidArgument` that names `function` where there is
/// none.
[[nodiscard]] std::int64_t mesh_dim_named(const char* function, const DeviceMesh& mesh,
                                          const std::string& name);

}  // namespace tessera::nn::detail
