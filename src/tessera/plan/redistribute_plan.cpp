#include "tessera/plan/redistribute_plan.h"

#include <algorithm>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"
#include "tessera/plan/estimate.h"
#include "tessera/plan/lru_cache.h"
#include "tessera/plan/plan_cache.h"
#include "tessera/plan/plan_state.h"
#include "tessera/plan/planner.h"
#include "tessera/plan/rank_plan.h"
#include "tessera/plan/roles.h"

namespace tessera {
namespace {

struct PlanKey {
  Layout from;
  Layout to;
  PlanOptions options;

  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const {
    std::size_t seed = hash_combine(key.from.hash(), key.to.hash());
    seed = hash_combine(seed, static_cast<std::size_t>(key.options.element_size));
    seed = hash_combine(seed, static_cast<std::size_t>(key.options.staging_budget));
    return hash_combine(seed, key.options.cost.hash());
  }
};

using PlanCache = detail::LruCache<PlanKey, RedistributePlan, PlanKeyHash>;

PlanCache& plan_cache() {
  static auto& cache = *new PlanCache(1024);  // Never destroyed: used until the last thread ends.
  return cache;
}

/// Shards become contributions where they are, for nothing: returns `to` with what is newly Partial
/// there still sharded as in `from`, cut last. Nothing when no shard becomes Partial.
std::optional<Layout> before_filling(const Layout& from, const Layout& to) {
  if (!from.mesh().same_ranks(to.mesh())) return std::nullopt;
  Placements placements = to.placements();
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const auto* partial = std::get_if<Partial>(&placements[i]);
    const bool fills = partial != nullptr && partial->op != ReduceOp::avg &&
                       from.mesh().sizes()[i] > 1 && is_sharded(from.placements()[i]);
    if (fills) placements[i] = from.placements()[i];
  }
  if (placements == to.placements()) return std::nullopt;
  std::vector<std::int64_t> order;
  const auto add = [&](std::int64_t mesh_dim) {
    if (std::find(order.begin(), order.end(), mesh_dim) == order.end()) order.push_back(mesh_dim);
  };
  for (const auto* layout : {&to, &from}) {
    for (std::int64_t dim = 0; dim < from.ndim(); ++dim) {
      for (const auto& split : layout->splits(dim)) add(split.mesh_dim);
    }
  }
  for (std::int64_t i = 0; i < to.mesh().ndim(); ++i) add(i);
  return Layout(to.mesh(), std::move(placements), to.shape(), order);
}

}  // namespace

const Layout& RedistributePlan::from() const { return state_->from; }

const Layout& RedistributePlan::to() const { return state_->to; }

const PlanOptions& RedistributePlan::options() const { return state_->options; }

const std::vector<Step>& RedistributePlan::steps() const { return state_->chosen.steps; }

std::int64_t RedistributePlan::cost_ps() const { return state_->chosen.cost_ps; }

const std::string& RedistributePlan::name() const { return state_->chosen.name; }

bool RedistributePlan::is_local() const {
  return std::all_of(steps().begin(), steps().end(),
                     [](const Step& step) { return step.is_local(); });
}

std::vector<Candidate> RedistributePlan::candidates() const {
  auto candidates = detail::find_candidates(from(), to(), options(), /*all=*/true);
  // A search that looks at everything may run out of states before it finds what was chosen.
  std::erase_if(candidates, [&](const auto& other) { return other.name == name(); });
  candidates.insert(candidates.begin(), state_->chosen);
  return candidates;
}

std::shared_ptr<const RankPlan> RedistributePlan::for_rank(std::int64_t rank) const {
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->ranks.find(rank);
    if (found != state_->ranks.end()) return found->second;
  }
  // Outside of the lock, so that the ranks of one process plan side by side.
  auto own = std::make_shared<const RankPlan>(
      detail::make_rank_plan(from(), to(), steps(), options(), rank));
  const std::lock_guard lock(state_->mutex);
  return state_->ranks.emplace(rank, std::move(own)).first->second;
}

std::shared_ptr<const RankStep> RedistributePlan::messages(std::size_t index,
                                                           std::int64_t rank) const {
  TESSERA_CHECK(index < steps().size(), "RedistributePlan::messages: step ", index,
                " given; the plan has ", steps().size(), " step(s), numbered from 0");
  const Step& step = steps()[index];
  if (!detail::is_native(step.kind)) {
    auto own = for_rank(rank);
    const RankStep* part = &own->steps[index];
    return {std::move(own), part};
  }
  const std::pair key(index, rank);
  {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->spelled.find(key);
    if (found != state_->spelled.end()) return found->second;
  }
  auto spelled = std::make_shared<const RankStep>(rank_step(step, rank));
  const std::lock_guard lock(state_->mutex);
  return state_->spelled.emplace(key, std::move(spelled)).first->second;
}

PlanSummary RedistributePlan::summary() const {
  PlanSummary summary;
  summary.ranks = detail::sample_ranks(from(), to());
  summary.complete = detail::sample_is_complete(from(), to());
  for (const auto rank : summary.ranks) {
    const auto part = for_rank(rank);
    const auto raise = [](std::int64_t& most, std::int64_t value) { most = std::max(most, value); };
    raise(summary.most_received_bytes, part->traffic.received_bytes);
    raise(summary.most_sent_bytes, part->traffic.sent_bytes);
    raise(summary.most_bound_bytes, part->bound_bytes);
    raise(summary.most_messages, part->traffic.messages);
    raise(summary.most_peak_bytes, part->peak_bytes);
    raise(summary.most_staging_bytes, part->staging_bytes);
    summary.mean_received_bytes += part->traffic.received_bytes;
    summary.above_bound |= part->traffic.received_bytes > part->bound_bytes;
    summary.parts.push_back(part);
  }
  summary.mean_received_bytes /= static_cast<std::int64_t>(summary.ranks.size());
  if (!steps().empty()) {
    const detail::Roles roles(from(), to());
    summary.mean_bound_bytes = detail::mean_bound_bytes(roles, options().element_size);
  }
  // Somebody receives at least the average.
  summary.most_bound_bytes = std::max(summary.most_bound_bytes, summary.mean_bound_bytes);
  return summary;
}

RedistributePlan plan_redistribute(const Layout& from, const Layout& to,
                                   const PlanOptions& options) {
  return plan_cache().find_or_make(PlanKey{from, to, options}, [&] {
    auto candidates = detail::find_candidates(from, to, options, /*all=*/false);
    return RedistributePlan(std::make_shared<RedistributePlan::State>(
        from, to, options, std::move(candidates.front())));
  });
}

std::int64_t redistribution_bytes(const Layout& from, const Layout& to, std::int64_t element_size) {
  TESSERA_CHECK(element_size >= 1, "redistribution_bytes: element_size ", element_size,
                " given; it is the bytes of one element, at least 1");
  detail::check_pair(from, to);
  if (from.equivalent(to)) return 0;
  if (const auto shards = before_filling(from, to)) {
    return redistribution_bytes(from, *shards, element_size);
  }
  const detail::Roles roles(from, to);
  const std::int64_t direct = detail::estimate_exchange(roles, element_size).received_bytes;
  if (roles.contributions.empty()) return direct;
  // Reduced in pieces and gathered behind: what reduce_scatter and all_reduce do.
  const std::int64_t n = roles.contributions.count();
  const std::int64_t needed = roles.to.local_numel(0) * element_size;
  const std::int64_t piece = roles.from.local_numel(0) * element_size / n;
  return std::min(direct, (n - 1) * piece + std::max<std::int64_t>(needed - piece, 0));
}

PlanCacheInfo plan_cache_info() { return plan_cache().info(); }

void set_plan_cache_capacity(std::size_t capacity) { plan_cache().set_capacity(capacity); }

void clear_plan_cache() { plan_cache().clear(); }

}  // namespace tessera
