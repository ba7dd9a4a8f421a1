#pragma once

#include <cstdint>
#include <vector>

#include "tessera/plan/redistribute_plan.h"

namespace tessera::detail {

/// Computes one rank's own part of a plan, and what it costs that rank.
[[nodiscard]] RankPlan make_rank_plan(const Layout& from, const Layout& to,
                                      const std::vector<Step>& steps, const PlanOptions& options,
                                      std::int64_t rank);

}  // namespace tessera::detail
