#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/plan/redistribute_plan.h"
#include "tessera/plan/step.h"

namespace tessera::detail {

/// Limits on what a chain of collectives may cost to be of interest.
struct PathLimits {
  /// Not dearer than this.
  std::int64_t cost_ps;
  /// Never more elements in memory on one rank than this, the input included.
  std::int64_t peak_elements;
  /// Never more elements in message buffers than this.
  std::int64_t staging_elements;
};

/// Finds the cheapest chain of native collectives, slices and fills from one layout to another on
/// the same mesh; nothing when none is within the limits.
///
/// Dijkstra's algorithm over placement states, each with the order in which mesh dims split a
/// tensor dim. Strided shards that change, more than 8 mesh dims or 16 tensor dims are left to the
/// direct exchange.
[[nodiscard]] std::optional<std::vector<Step>> find_path(const Layout& from, const Layout& to,
                                                         const PlanOptions& options,
                                                         const PathLimits& limits);

}  // namespace tessera::detail
