#pragma once

#include <cstdint>
#include <string>

#include "tessera/sharded/sharding_plan.h"

namespace tessera::sharded {

/// Replaces a `torch::nn::EmbeddingBag` by one whose table is sharded and never gathered.
///
/// Along dim 0 every rank has some rows: it adds up those of each bag that it has, and the sums are
/// reduced over the ranks, so the traffic is that of the output. Along dim 1 every rank has some columns
/// of all rows: nothing moves, and the output is sharded along dim 1.
///
/// The module that takes its place has the parameter `weight`, a DTensor, and takes the same arguments:
/// plain tensors, which must be the same on all ranks, or DTensors. It returns a DTensor, replicated for
/// dim 0 and `Shard(1)` for dim 1.
class EmbeddingBagSharder final : public Sharder {
 public:
  /// `spec` cuts dim 0 or 1 into one chunk for each rank of the group, in any order.
  explicit EmbeddingBagSharder(ChunkShardingSpec spec) : spec_(std::move(spec)) {}

  /// Refuses other modules than `torch::nn::EmbeddingBag`; `max_norm`, `sparse` and
  /// `scale_grad_by_freq`; and, along dim 0, `max`, of which parts cannot be added up.
  void check(const torch::nn::Module& module, const Group& group) const override;
  [[nodiscard]] torch::nn::AnyModule shard(torch::nn::Module& module, std::int64_t src_rank,
                                           const Group& group) const override;
  [[nodiscard]] std::string name() const override;

 private:
  ChunkShardingSpec spec_;
};

}  // namespace tessera::sharded
