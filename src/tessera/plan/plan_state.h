#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "tessera/plan/redistribute_plan.h"

namespace tessera {

/// The shared, immutable contents of a plan, and the ranks' parts computed so far.
struct RedistributePlan::State {
  State(Layout from_layout, Layout to_layout, const PlanOptions& plan_options, Candidate candidate)
      : from(std::move(from_layout)),
        to(std::move(to_layout)),
        options(plan_options),
        chosen(std::move(candidate)) {}

  Layout from;
  Layout to;
  PlanOptions options;
  Candidate chosen;

  mutable std::mutex mutex;
  mutable std::unordered_map<std::int64_t, std::shared_ptr<const RankPlan>> ranks;
  /// By step and rank: native collectives spelled out as messages.
  mutable std::map<std::pair<std::size_t, std::int64_t>, std::shared_ptr<const RankStep>> spelled;
};

}  // namespace tessera
