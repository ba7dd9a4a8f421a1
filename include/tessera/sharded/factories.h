#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <c10/core/Scalar.h>
#include <c10/core/TensorOptions.h>

#include "tessera/comm/group.h"
#include "tessera/sharded/sharded_tensor.h"

namespace tessera::sharded {

/// \file
/// New sharded tensors. Every rank makes its own shards; no values move. Of the options dtype and
/// `requires_grad` count; the devices are those of the placements. All throw `InvalidArgument` on all
/// members as `shard_tensor` does for specs.

[[nodiscard]] ShardedTensor zeros(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                                  const at::TensorOptions& options = {},
                                  const std::optional<Group>& group = std::nullopt);
[[nodiscard]] ShardedTensor ones(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                                 const at::TensorOptions& options = {},
                                 const std::optional<Group>& group = std::nullopt);
/// Uninitialised memory.
[[nodiscard]] ShardedTensor empty(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                                  const at::TensorOptions& options = {},
                                  const std::optional<Group>& group = std::nullopt);
/// The dtype follows from the value unless the options name one.
[[nodiscard]] ShardedTensor full(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                                 const at::Scalar& value, const at::TensorOptions& options = {},
                                 const std::optional<Group>& group = std::nullopt);
/// Random numbers, evenly distributed in [0, 1) and normally distributed. The values are those of
/// `tessera::rand` and `randn` on any mesh: functions of the seed, of how many random operations came
/// before, and of the element's global index.
[[nodiscard]] ShardedTensor rand(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                                 const at::TensorOptions& options = {},
                                 const std::optional<Group>& group = std::nullopt);
[[nodiscard]] ShardedTensor randn(const ShardingSpec& spec, const std::vector<std::int64_t>& sizes,
                                  const at::TensorOptions& options = {},
                                  const std::optional<Group>& group = std::nullopt);

}  // namespace tessera::sharded
