#pragma once

#include <cstdint>
#include <vector>

#include "tessera/layout/layout.h"
#include "tessera/sharded/budget_planner.h"

namespace tessera::sharded::detail {

/// What there is to know of a parameter to decide whether to cut it.
struct WeightSize {
  Shape shape;
  std::int64_t element_bytes = 0;

  [[nodiscard]] std::int64_t bytes() const;
};

/// A cut of a parameter over some ranks: the dim, or -1 for none, and the bytes of the largest chunk.
struct Cut {
  std::int64_t dim = -1;
  std::int64_t bytes = 0;

  bool operator==(const Cut&) const = default;
};

/// Returns the cut with the smallest largest chunk, the first of those; none where no cut saves any.
[[nodiscard]] Cut best_cut(const WeightSize& weight, std::int64_t ranks);

/// Returns what becomes of each weight so that a rank that also holds `other_bytes` stays within the
/// budget: as few as it takes are cut, those that save most first. Throws `InvalidArgument` when that
/// cannot be.
[[nodiscard]] std::vector<Cut> budget_cuts(const std::vector<WeightSize>& weights,
                                           std::int64_t other_bytes, std::int64_t ranks,
                                           const BudgetPlanner::Options& options);

}  // namespace tessera::sharded::detail
