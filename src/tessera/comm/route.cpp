#include "tessera/comm/route.h"

#include <algorithm>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"
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
  const World handle(world.shared_from_this());
  const MeshShape& mesh = step.from.mesh();
  if (!step.mesh_dims.empty()) {
    std::vector<std::string> labels;
    for (const auto dim : step.mesh_dims) labels.push_back(mesh.dim_label(dim));
    return handle.group(mesh.slice_dims(step.mesh_dims, world.rank()).ranks(),
                        mesh.names().empty() ? "" : joined(labels, ","));
  }
  auto ranks = mesh.ranks();
  const auto more = step.to.mesh().ranks();
  ranks.insert(ranks.end(), more.begin(), more.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return handle.group(ranks);
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
  route.fingerprint = {"redistribute", concat(c10::toString(question.dtype), ' ', question.from,
                                              " to ", question.to)};
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
