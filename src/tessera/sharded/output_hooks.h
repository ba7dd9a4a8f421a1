#pragma once

#include "tessera/comm/group.h"
#include "tessera/nn/hooks.h"
#include "tessera/sharded/sharding_spec.h"

namespace tessera::sharded::detail {

/// Throws `InvalidArgument` that names the module's `path` when no DTensor on ranks of the group can be
/// placed as `spec` says.
void check_output_spec(const std::string& path, const ShardingSpec& spec, const Group& group);

/// Returns a DTensor placed as `spec` says, differentiably; on its own mesh if that has the same ranks.
[[nodiscard]] at::Tensor resharded_output(const at::Tensor& tensor, const ShardingSpec& spec);

/// Returns this rank's part of a DTensor, reduced where it was Partial, and without a dim that is cut
/// into chunks of one element.
[[nodiscard]] at::Tensor local_output(const at::Tensor& tensor);

/// Returns a hook that places the DTensors which a module returns as `spec` says; plain tensors stay.
[[nodiscard]] nn::ForwardHook reshard_output_hook(const ShardingSpec& spec);

/// Returns a hook that makes the DTensors which a module returns this rank's parts of them.
[[nodiscard]] nn::ForwardHook local_tensor_hook();

}  // namespace tessera::sharded::detail
