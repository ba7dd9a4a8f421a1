#include "tessera/plan/planner.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/base/divide.h"
#include "tessera/plan/estimate.h"
#include "tessera/plan/path_search.h"
#include "tessera/plan/roles.h"

namespace tessera::detail {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// Byte counts and their sums over all ranks must fit 63 bits, and picosecond prices saturate.
void check_size(const Layout& from, const Layout& to, std::int64_t element_size) {
  const std::int64_t ranks = from.mesh().num_ranks() + to.mesh().num_ranks();
  TESSERA_CHECK(from.numel() <= kUnlimited / element_size / ranks / 2,
                "plan_redistribute: ", from.numel(), " elements of ", element_size, " byte(s) on ",
                ranks, " ranks given; the bytes of all ranks together must fit 62 bits");
}

void check_options(const PlanOptions& options) {
  TESSERA_CHECK(options.element_size >= 1, "plan_redistribute: element_size ", options.element_size,
                " given; it is the bytes of one element, at least 1");
  TESSERA_CHECK(options.staging_budget >= 0, "plan_redistribute: staging_budget ",
                options.staging_budget, " given; it must be 0 or more bytes");
  const CostModel& cost = options.cost;
  TESSERA_CHECK(
      cost.launch_ps >= 0 && cost.message_ps >= 0 && cost.byte_ps >= 0 && cost.packed_byte_ps >= 0,
      "plan_redistribute: a negative price given in the cost model (launch ", cost.launch_ps,
      ", message ", cost.message_ps, ", byte ", cost.byte_ps, ", packed byte ", cost.packed_byte_ps,
      " ps); prices must be 0 or more");
}

/// Cutting a message into rounds rounds it up by less than one element, and a rank has at most this
/// many messages.
std::int64_t most_messages(const Roles& roles) {
  return roles.same_mesh ? 2 * (roles.from.mesh().num_ranks() - 1)
                         : roles.from.mesh().num_ranks() + roles.to.mesh().num_ranks();
}

/// How many pieces each message must be cut into so that what a rank sends and receives at once
/// fits the budget; 0 when that is impossible. The same on every rank: computed from the largest
/// parts.
std::int64_t rounds_within_budget(const Roles& roles, const PlanOptions& options) {
  if (options.staging_budget == kUnlimited) return 1;
  const std::int64_t budget = options.staging_budget / options.element_size;
  const std::int64_t total = most_exchanged(roles);
  if (total <= budget) return 1;
  const std::int64_t usable = budget - most_messages(roles);
  return usable > 0 ? ceil_divide(total, usable) : 0;
}

Candidate make_candidate(std::string name, std::vector<Step> steps) {
  Candidate candidate;
  candidate.name = std::move(name);
  candidate.steps = std::move(steps);
  for (const auto& step : candidate.steps) {
    const std::int64_t room = kUnlimited - candidate.cost_ps;
    candidate.cost_ps += std::min(step.cost_ps, room);
    candidate.received_bytes += step.worst.received_bytes;
  }
  return candidate;
}

/// Returns limits under which input, output and message buffers together stay within the budget;
/// `alive` elements are in use besides.
PathLimits memory_limits(const Layout& from, const Layout& to, const PlanOptions& options,
                         std::int64_t alive) {
  if (options.staging_budget == kUnlimited) return {kUnlimited, kUnlimited, kUnlimited};
  const std::int64_t staging = options.staging_budget / options.element_size;
  return {kUnlimited, most_held(from) + most_held(to) + staging - alive, staging};
}

/// The first tensor dim that can be cut into a stripe for each copy, else the longest.
std::int64_t stripe_dim(const Layout& to, std::int64_t copies) {
  const Shape sizes = to.local_shape(0);
  auto found = std::find_if(sizes.begin(), sizes.end(), [&](auto size) { return size >= copies; });
  if (found == sizes.end()) found = std::max_element(sizes.begin(), sizes.end());
  return found - sizes.begin();
}

/// Returns `to` with the copies of the destination turned into stripes: the mesh dims that newly
/// replicate cut one tensor dim last. Nothing when there are no copies.
std::optional<Layout> striped_destination(const Roles& roles) {
  const Layout& to = roles.to;
  if (roles.destination_replicas.count() == 1 || to.numel() == 0 || to.ndim() == 0) return {};
  const std::int64_t dim = stripe_dim(to, roles.destination_replicas.count());
  Placements placements = to.placements();
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> last;
  for (std::int64_t d = 0; d < to.ndim(); ++d) {
    for (const auto& split : to.splits(d)) order.push_back(split.mesh_dim);
  }
  for (std::int64_t i = 0; i < to.mesh().ndim(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool spectator = roles.same_mesh && is_replicate(roles.from.placements()[at]);
    if (is_replicate(placements[at]) && !spectator) placements[at] = Shard(dim);
    if (std::find(order.begin(), order.end(), i) == order.end()) last.push_back(i);
  }
  order.insert(order.end(), last.begin(), last.end());
  return Layout(to.mesh(), std::move(placements), to.shape(), order);
}

/// Where destinations are replicated, lets each copy receive a different stripe directly and then
/// gathers the stripes among the copies: the senders send each byte once.
std::optional<Candidate> stripes_and_gather(const Roles& roles, const PlanOptions& options) {
  const auto striped = striped_destination(roles);
  if (!striped || roles.from.equivalent(*striped) || roles.to.equivalent(*striped)) return {};
  const Step scatter = direct_step(Roles(roles.from, *striped), options);
  const PathLimits limits = memory_limits(roles.from, roles.to, options, most_held(roles.from));
  const auto gather = find_path(*striped, roles.to, options, limits);
  if (scatter.rounds == 0 || !gather) return {};
  std::vector<Step> steps{scatter};
  steps.insert(steps.end(), gather->begin(), gather->end());
  return make_candidate("stripes and all_gather", std::move(steps));
}

[[noreturn]] void refuse_budget(const Roles& roles, const PlanOptions& options) {
  throw InvalidArgument(concat(
      "plan_redistribute: staging_budget ", options.staging_budget, " bytes given for ", roles.from,
      " to ", roles.to, "; it must be at least ", (most_messages(roles) + 1) * options.element_size,
      " bytes, one element for each message in flight and one more"));
}

}  // namespace

Step direct_step(const Roles& roles, const PlanOptions& options) {
  const Layout& from = roles.from;
  const Layout& to = roles.to;
  Step step{StepKind::exchange, from, to, roles.talking_dims, -1, 1, {}, 0};
  step.worst = estimate_exchange(roles, options.element_size);
  // Between different meshes, only looking at every rank can tell that nothing moves.
  const bool nothing_moves =
      from.numel() == 0 || (sample_is_complete(from, to) && roles.contributions.empty() &&
                            roles.roots.empty() && step.worst.received_bytes == 0);
  if (roles.local || nothing_moves) {
    const bool fills = roles.local && !roles.roots.empty();
    step.kind = fills ? StepKind::fill : StepKind::slice;
    step.mesh_dims.clear();
    step.worst = {0, 0, to.local_numel(0) * options.element_size, 0};
    step.cost_ps = options.cost.cost_ps(step.worst) - options.cost.launch_ps;
    return step;
  }
  step.rounds = rounds_within_budget(roles, options);
  step.worst.messages *= std::max<std::int64_t>(step.rounds, 1);
  step.cost_ps = options.cost.cost_ps(step.worst);
  return step;
}

std::vector<Candidate> find_candidates(const Layout& from, const Layout& to,
                                       const PlanOptions& options, bool all) {
  check_options(options);
  check_pair(from, to);
  check_size(from, to, options.element_size);
  if (from.equivalent(to)) return {make_candidate("nothing to do", {})};
  const Roles roles(from, to);
  Candidate direct = make_candidate("direct exchange", {direct_step(roles, options)});
  if (direct.steps.front().is_local()) {
    direct.name = "local";
    return {std::move(direct)};
  }
  const bool direct_fits = direct.steps.front().rounds > 0;
  PathLimits limits = memory_limits(from, to, options, 0);
  if (direct_fits && !all) limits.cost_ps = direct.cost_ps;
  // In this order ties are decided: engines have collectives tuned, so these win.
  std::vector<Candidate> candidates;
  if (auto path = find_path(from, to, options, limits)) {
    candidates.push_back(make_candidate("collectives", std::move(*path)));
  }
  if (direct_fits) candidates.push_back(std::move(direct));
  if (auto striped = stripes_and_gather(roles, options)) candidates.push_back(std::move(*striped));
  if (candidates.empty()) refuse_budget(roles, options);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto& a, const auto& b) { return a.cost_ps < b.cost_ps; });
  return candidates;
}

}  // namespace tessera::detail
