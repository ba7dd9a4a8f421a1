#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/layout/layout.h"
#include "tessera/plan/cost_model.h"
#include "tessera/plan/step.h"

namespace tessera {

/// What a plan depends on besides the two layouts.
struct PlanOptions {
  /// Bytes per element; 4 is float32.
  std::int64_t element_size = 4;
  /// How many bytes of message buffers a rank may use beside its input and output. A direct
  /// exchange is cut into rounds to fit; candidates that cannot be are rejected.
  std::int64_t staging_budget = std::numeric_limits<std::int64_t>::max();
  CostModel cost = {};

  bool operator==(const PlanOptions&) const = default;
};

/// One way of getting from one layout to the other that was considered.
struct Candidate {
  /// `"nothing to do"`, `"local"`, `"collectives"`, `"direct exchange"` or
  /// `"stripes and all_gather"`.
  std::string name;
  std::vector<Step> steps;
  std::int64_t cost_ps = 0;
  /// The most bytes that any rank receives in all steps together, as estimated for choosing.
  std::int64_t received_bytes = 0;
};

/// One rank's parts of all steps of a plan, in order.
struct RankPlan {
  /// For `all_gather`, `reduce_scatter` and `all_reduce` only the shapes are filled in: engines
  /// have these, and `RedistributePlan::messages` spells them out where they are wanted so.
  std::vector<RankStep> steps;
  /// What each step moves.
  std::vector<Traffic> step_traffic;
  /// Exact, this rank's, over all steps: a native collective counts what its bandwidth-optimal
  /// algorithm moves.
  Traffic traffic;
  /// No plan can receive less: what the rank needs and does not hold. Where contributions are
  /// reduced, one value per needed element. 0 when the destination is newly `Partial`, which any
  /// rank's data can serve.
  std::int64_t bound_bytes = 0;
  /// Input, output, intermediate tensors and message buffers together, at the worst moment.
  std::int64_t peak_bytes = 0;
  /// How much of that is message buffers.
  std::int64_t staging_bytes = 0;
};

/// What the ranks of a plan move, looked at together. Of meshes of more than 64 ranks a fixed
/// sample is looked at.
struct PlanSummary {
  std::vector<std::int64_t> ranks;
  /// The part of each of `ranks`.
  std::vector<std::shared_ptr<const RankPlan>> parts;
  /// True when `ranks` are all ranks of both meshes.
  bool complete = false;
  std::int64_t most_received_bytes = 0;
  std::int64_t mean_received_bytes = 0;
  /// The least that the busiest rank of any plan must receive, and the least on average.
  std::int64_t most_bound_bytes = 0;
  std::int64_t mean_bound_bytes = 0;
  std::int64_t most_sent_bytes = 0;
  std::int64_t most_messages = 0;
  std::int64_t most_peak_bytes = 0;
  std::int64_t most_staging_bytes = 0;
  /// True when some rank receives more than its own bound.
  bool above_bound = false;
};

/// How a tensor gets from one layout to another: a list of steps, equal on every rank.
///
/// A handle onto an immutable plan that the cache may share; cheap to copy, safe to use from many
/// threads.
class RedistributePlan {
 public:
  [[nodiscard]] const Layout& from() const;
  [[nodiscard]] const Layout& to() const;
  [[nodiscard]] const PlanOptions& options() const;

  /// The steps in order; none when the local tensors are right as they are.
  [[nodiscard]] const std::vector<Step>& steps() const;
  [[nodiscard]] std::int64_t cost_ps() const;
  /// True when no byte goes from one rank to another.
  [[nodiscard]] bool is_local() const;

  [[nodiscard]] const std::string& name() const;

  /// Returns everything that can be done within the budget, the cheapest, which is the chosen one,
  /// first. Computed anew: choosing gives up on dear candidates early.
  [[nodiscard]] std::vector<Candidate> candidates() const;

  /// Returns one rank's own part. Computed from the layouts alone, without the other ranks, on
  /// first use, and kept.
  [[nodiscard]] std::shared_ptr<const RankPlan> for_rank(std::int64_t rank) const;

  /// Returns one rank's part of step `index` as messages, whatever its kind; kept like `for_rank`.
  /// Throws `InvalidArgument` when there is no such step.
  [[nodiscard]] std::shared_ptr<const RankStep> messages(std::size_t index,
                                                         std::int64_t rank) const;

  /// Looks at the parts of all ranks, or of a sample of many.
  [[nodiscard]] PlanSummary summary() const;

  /// Returns the plan in words: the steps, bytes received per rank against the bound, messages,
  /// peak memory, and what was rejected and why. Meshes of more than 16 ranks show a sample.
  [[nodiscard]] std::string explain() const;

  /// The same as one JSON object; numbers are bytes and picoseconds.
  [[nodiscard]] std::string explain_json() const;

 private:
  friend RedistributePlan plan_redistribute(const Layout&, const Layout&, const PlanOptions&);
  struct State;
  explicit RedistributePlan(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// Returns the cheapest plan from one layout to another, on the same mesh or a different one.
///
/// Pure: depends on the arguments alone, so all ranks find the same plan without talking. Answers
/// come from a bounded cache (see plan_cache.h) when the same question was asked before.
///
/// Throws `InvalidArgument` when the shapes differ, when a mesh dim would turn `Partial` of one op
/// into another (redistribute to Replicate first), when element_size < 1, for a negative budget or
/// price, when the bytes of all ranks together do not fit 62 bits, and when the staging budget is too
/// small for one element per peer (the message says how much is needed).
[[nodiscard]] RedistributePlan plan_redistribute(const Layout& from, const Layout& to,
                                                 const PlanOptions& options = {});

/// Returns the most bytes that any rank must receive to get from one layout to another, as the
/// cost model sees it: the measure by which operations choose their layouts. Much cheaper than a
/// plan. Throws as `plan_redistribute` does.
[[nodiscard]] std::int64_t redistribution_bytes(const Layout& from, const Layout& to,
                                                std::int64_t element_size);

}  // namespace tessera
