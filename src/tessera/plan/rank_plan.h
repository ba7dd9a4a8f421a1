#pragma once

#include <cstdint>
#include <vector>

#include "tessera/plan/redistribute_plan.h"

namespace tessera::detail {

/// True for the collectives that engines do as one operation and that need no messages of ours.
[[nodiscard]] bool is_native(StepKind kind);

/// Computes one rank's own part of a plan, and what it costs that rank.
[[nodiscard]] RankPlan make_rank_plan(const Layout& from, const Layout& to,
                                      const std::vector<Step>& steps, const PlanOptions& options,
                                      std::int64_t rank);

}  // namespace tessera::detail
