#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "support/random_layout.h"
#include "tessera/comm/world.h"
#include "tessera/sharded/sharded_tensor.h"

/// What is tested with ranks as threads and as processes: every rank calls the same.
namespace tessera::test {

/// Different numbers, so that no element can pass for another.
[[nodiscard]] at::Tensor counted(const std::vector<std::int64_t>& sizes,
                                 at::ScalarType dtype = at::kFloat);

/// Chunks or boxes on any of `ranks`, in any order, some of them several times or not at all.
[[nodiscard]] sharded::ShardingSpec random_spec(Random& random, const Shape& shape,
                                                const std::vector<std::int64_t>& ranks);

/// The part of `whole` that a shard is.
[[nodiscard]] at::Tensor slice_of(const at::Tensor& whole, const sharded::ShardMetadata& shard);

/// Expects that this rank's shards are their parts of `whole`.
void expect_shards(const sharded::ShardedTensor& tensor, const at::Tensor& whole);

/// Random specs and shapes: shard, reshard and gather give the original, and every rank receives
/// exactly what it needs and does not hold. All members of the group call it.
void check_random_resharding(const Group& group, std::uint64_t first_seed, std::uint64_t count);

/// The same in two groups at once that share the ranks out, in any order.
void check_sub_groups(World& world, std::uint64_t first_seed, std::uint64_t count);

/// To DTensors and back, shared and moved; what moves is as little as it can be.
void check_random_dtensors(World& world, std::uint64_t first_seed, std::uint64_t count);

}  // namespace tessera::test
