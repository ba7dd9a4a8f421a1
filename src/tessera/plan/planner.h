#pragma once

#include <vector>

#include "tessera/plan/redistribute_plan.h"
#include "tessera/plan/roles.h"

namespace tessera::detail {

/// Returns the ways to get from one layout to another that fit the budget, the cheapest first.
///
/// Chains of collectives that are dearer than the direct exchange are given up as soon as that is
/// certain, unless `all` asks to see them. Throws `InvalidArgument` as `plan_redistribute` does.
[[nodiscard]] std::vector<Candidate> find_candidates(const Layout& from, const Layout& to,
                                                     const PlanOptions& options, bool all);

/// Returns the one step that goes straight from one layout to the other, a local one where nothing
/// moves; with 0 rounds when it does not fit the budget.
[[nodiscard]] Step direct_step(const Roles& roles, const PlanOptions& options);

}  // namespace tessera::detail
