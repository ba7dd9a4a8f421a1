#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/comm/group.h"
#include "tessera/sharded/sharding_plan.h"

namespace tessera::sharded {

/// Shards as few parameters as it takes to stay within a memory budget on every rank, those that save
/// most first, each evenly over all ranks of a group.
///
/// A parameter is cut along the dim that leaves the largest chunk smallest, the first of those. What
/// is not sharded, and buffers, are held by every rank. A tensor at several paths counts once.
class BudgetPlanner final : public ShardingPlanner {
 public:
  struct Options {
    /// The most bytes that a rank may hold.
    std::int64_t bytes_per_rank = 0;
    /// How many times the bytes of a parameter are needed: 2 with its gradient, 4 with the state of
    /// AdamW as well.
    std::int64_t copies = 1;
  };

  /// Throws `InvalidArgument` for a negative budget and less than one copy.
  explicit BudgetPlanner(Options options, const std::optional<Group>& group = std::nullopt);

  /// Throws `InvalidArgument` that says what is needed when the budget is too small even with
  /// everything sharded.
  [[nodiscard]] ShardingPlan build_plan(const torch::nn::Module& module) const override;

  /// The bytes that the fullest rank holds when `module` is sharded by `plan`, which must be of
  /// `build_plan`.
  [[nodiscard]] std::int64_t held_bytes(const torch::nn::Module& module,
                                        const ShardingPlan& plan) const;

 private:
  Options options_;
  std::vector<std::int64_t> ranks_;
};

}  // namespace tessera::sharded
