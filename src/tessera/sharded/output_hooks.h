#pragma once

#include "tessera/nn/hooks.h"
#include "tessera/sharded/sharding_spec.h"

namespace tessera::sharded::detail {

/// Throws `InvalidArgument` that names the module's `path` when no DTensor can be placed as `spec` says.
void check_output_spec(const std::string& path, const ShardingSpec& spec);

/// Returns a hook that places the DTensors which a module returns as `spec` says; plain tensors stay.
[[nodiscard]] nn::ForwardHook reshard_output_hook(const ShardingSpec& spec);

/// Returns a hook that makes the DTensors which a module returns this rank's parts of them.
[[nodiscard]] nn::ForwardHook local_tensor_hook();

}  // namespace tessera::sharded::detail
