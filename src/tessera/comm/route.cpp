#include "tessera/comm/route.h"

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"
#include "tessera/comm/participants.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {
namespace {

/// A cache that is full is emptied: what is still wanted comes back at the price of a lookup in the
/// cache of plans.
constexpr std::size_t kMostRoutes = 512;

std::size_t hash_of(const RouteQuestion& question) {
  std::size_t seed = hash_combine(question.from.hash(), question.to.hash());
  seed = hash_combine(seed, static_cast<std::size_t>(question.dtype));
  return hash_combine(seed, static_cast<std::size_t>(question.staging_budget));
}

/// The ranks that take part in a step together with the calling one.
Group group_of(WorldState& world, const Step& step) {
  if (step.mesh_dims.empty()) return group_of_both(world, step.from.mesh(), step.to.mesh());
  return group_along(world, step.from.mesh(), step.mesh_dims);
}

/// What the ranks must agree on, as the user sees it.
Fingerprint fingerprint_of(const RouteQuestion& question) {
  std::string arguments =
      concat(c10::toString(question.dtype), ' ', question.from, " to ", question.to);
  if (question.staging_budget != RedistributeLocalOptions().staging_budget) {
    arguments += concat(", staging budget ", question.staging_budget);
  }
  return {kRedistribute, std::move(arguments)};
}

/// True when all steps with traffic are operations of one group, that of all who take part: then
/// whoever agrees on the first agrees on all. All of them find the same.
bool steps_have_all(const Route& route) {
  const auto& steps = route.plan.steps();
  const auto with_traffic =
      std::count_if(steps.begin(), steps.end(), [](const Step& step) { return !step.is_local(); });
  const auto with_all = std::count_if(
      route.legs.begin(), route.legs.end(),
      [&](const Route::Leg& leg) { return leg.group && *leg.group == *route.participants; });
  return with_traffic > 0 && with_traffic == with_all;
}

Route find_route(WorldState& world, const RouteQuestion& question) {
  const std::int64_t rank = world.rank();
  const PlanOptions options{
      .element_size = static_cast<std::int64_t>(c10::elementSize(question.dtype)),
      .staging_budget = question.staging_budget,
      .cost = world.cost_model()};
  Route route(plan_redistribute(question.from, question.to, options), rank);
  if (const auto position = question.from.mesh().position_of(rank)) {
    route.in_shape = question.from.local_shape(*position);
  }
  for (std::size_t i = 0; i < route.plan.steps().size(); ++i) {
    const Step& step = route.plan.steps()[i];
    if (!step.from.mesh().contains(rank) && !step.to.mesh().contains(rank)) continue;
    Route::Leg leg{&step, &route.own->steps[i], route.own->step_traffic[i], {}, {}};
    if (!step.is_local()) leg.group = group_of(world, step);
    route.legs.push_back(std::move(leg));
    if (!step.is_local()) route.legs_to_wait_for = route.legs.size();
  }
  route.participants = participants_of(world, question.from, question.to);
  if (route.participants && steps_have_all(route)) {
    route.agreement = Route::Agreement::in_first_leg;
  }
  route.fingerprint = fingerprint_of(question);
  route.cause = concat("redistribute ", to_string(question.from.placements()), " -> ",
                       to_string(question.to.placements()));
  return route;
}

}  // namespace

const std::shared_ptr<const RankStep>& messages_of(Route& route, Route::Leg& leg) {
  if (leg.messages == nullptr) {
    const auto index = static_cast<std::size_t>(leg.step - route.plan.steps().data());
    leg.messages = route.plan.messages(index, route.rank);
  }
  return leg.messages;
}

const std::shared_ptr<Route>& RouteCache::find(WorldState& world, const RouteQuestion& question) {
  const std::size_t hash = hash_of(question);
  const auto [begin, end] = entries_.equal_range(hash);
  for (auto entry = begin; entry != end; ++entry) {
    const Entry& known = entry->second;
    if (known.from == question.from && known.to == question.to && known.dtype == question.dtype &&
        known.staging_budget == question.staging_budget) {
      return known.route;
    }
  }
  auto route = std::make_shared<Route>(find_route(world, question));
  if (entries_.size() >= kMostRoutes) entries_.clear();
  const auto added = entries_.emplace(
      hash, Entry{question.from, question.to, question.dtype, question.staging_budget, route});
  return added->second.route;
}

}  // namespace tessera::detail
