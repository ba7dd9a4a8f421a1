#include "tessera/comm/batch_route.h"

#include <algorithm>

#include "tessera/base/concat.h"
#include "tessera/base/hash.h"
#include "tessera/comm/participants.h"
#include "tessera/comm/route.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {
namespace {

/// A cache that is full is emptied.
constexpr std::size_t kMostRoutes = 64;

std::size_t hash_of(const BatchQuestion& question) {
  auto seed = static_cast<std::size_t>(question.staging_budget);
  for (std::size_t i = 0; i < question.changes.size(); ++i) {
    seed = hash_combine(seed, question.changes[i].from.hash());
    seed = hash_combine(seed, question.changes[i].to.hash());
    seed = hash_combine(seed, static_cast<std::size_t>(question.dtypes[i]));
  }
  return seed;
}

/// What a rank sends to others and receives from them.
Traffic traffic_of(const BatchRoute::Trip& trip, std::span<const std::int64_t> elements,
                   std::int64_t rank) {
  Traffic traffic;
  for (std::size_t i = 0; i < trip.parts.size(); ++i) {
    const auto bytes_in = [&](const std::vector<Message>& messages) {
      std::int64_t numel = 0;
      for (const auto& message : messages) numel += message.peer == rank ? 0 : message.numel;
      return numel * elements[i];
    };
    traffic.sent_bytes += bytes_in(trip.parts[i]->sends);
    traffic.received_bytes += bytes_in(trip.parts[i]->receives);
  }
  return traffic;
}

BatchRoute::Trip make_trip(WorldState& world, const Batch& batch, const BatchQuestion& question,
                           const std::vector<std::int64_t>& ranks) {
  BatchRoute::Trip trip{batch.items, {}, World(world.shared_from_this()).group(ranks), {}, {}};
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    trip.parts.push_back(std::make_shared<const RankStep>(rank_step(batch.steps[i], world.rank())));
    elements.push_back(
        static_cast<std::int64_t>(c10::elementSize(question.dtypes[batch.items[i]])));
  }
  trip.packing = std::make_shared<const BatchPacking>(trip.parts, elements, trip.group);
  trip.traffic = traffic_of(trip, elements, world.rank());
  return trip;
}

std::string call_text(const BatchQuestion& question) {
  std::string text = concat(question.changes.size(), " tensors");
  if (question.staging_budget != RedistributeLocalOptions().staging_budget) {
    text += concat(", staging budget ", question.staging_budget);
  }
  for (std::size_t i = 0; i < question.changes.size(); ++i) {
    text += concat(i == 0 ? ": " : ", ", c10::toString(question.dtypes[i]), ' ',
                   question.changes[i].from, " to ", question.changes[i].to);
  }
  return text;
}

BatchRoute find_route(WorldState& world, const BatchQuestion& question) {
  const std::int64_t rank = world.rank();
  std::vector<BatchItem> items;
  BatchRoute route;
  for (std::size_t i = 0; i < question.changes.size(); ++i) {
    const LayoutChange& change = question.changes[i];
    items.push_back(
        {change.from, change.to, static_cast<std::int64_t>(c10::elementSize(question.dtypes[i]))});
    const auto position = change.from.mesh().position_of(rank);
    route.in_shapes.push_back(position ? std::optional(change.from.local_shape(*position))
                                       : std::nullopt);
  }
  BatchPlan plan = plan_redistribute_all(
      items, {.staging_budget = question.staging_budget, .cost = world.cost_model()});
  for (const auto& batch : plan.batches) {
    const auto ranks = batch.ranks_with(rank);
    if (!ranks.empty()) route.trips.push_back(make_trip(world, batch, question, ranks));
  }
  route.alone = std::move(plan.alone);
  route.participants = participants_of_all(world, question.changes);
  // Found from what all ranks know, also of tensors that this one has no part in.
  const auto moves = [&](std::size_t i) {
    return !plan_redistribute(items[i].from, items[i].to,
                              {.element_size = items[i].element_size,
                               .staging_budget = question.staging_budget,
                               .cost = world.cost_model()})
                .is_local();
  };
  const bool is_one_trip =
      plan.batches.size() == 1 && std::none_of(route.alone.begin(), route.alone.end(), moves);
  route.agrees_in_trip = is_one_trip && route.participants && route.trips.size() == 1 &&
                         route.trips.front().group == *route.participants;
  route.fingerprint = {kRedistribute, call_text(question)};
  route.cause = concat("redistribute_all of ", items.size(), " tensors");
  return route;
}

}  // namespace

std::shared_ptr<const BatchRoute> BatchRouteCache::find(WorldState& world,
                                                        const BatchQuestion& question) {
  const std::size_t hash = hash_of(question);
  const auto [begin, end] = entries_.equal_range(hash);
  for (auto entry = begin; entry != end; ++entry) {
    const Entry& known = entry->second;
    if (known.staging_budget == question.staging_budget &&
        std::equal(known.changes.begin(), known.changes.end(), question.changes.begin(),
                   question.changes.end()) &&
        std::equal(known.dtypes.begin(), known.dtypes.end(), question.dtypes.begin(),
                   question.dtypes.end())) {
      return known.route;
    }
  }
  auto route = std::make_shared<const BatchRoute>(find_route(world, question));
  if (entries_.size() >= kMostRoutes) entries_.clear();
  entries_.emplace(hash, Entry{{question.changes.begin(), question.changes.end()},
                               {question.dtypes.begin(), question.dtypes.end()},
                               question.staging_budget,
                               route});
  return route;
}

}  // namespace tessera::detail
