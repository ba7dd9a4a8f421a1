#include "tessera/plan/batch_plan.h"

#include <algorithm>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/plan/estimate.h"
#include "tessera/plan/planner.h"
#include "tessera/plan/roles.h"

namespace tessera {
namespace {

/// What a tensor would add to a batch.
struct Passenger {
  std::size_t item;
  Step step;
  std::int64_t message_bytes;
};

/// Messages end where values of every dtype may begin: the most bytes that this adds for the messages
/// between the ranks of a step.
std::int64_t padding_of(const Step& step) {
  return 2 * kBatchAlignment * (step.from.mesh().num_ranks() + step.to.mesh().num_ranks());
}

RedistributePlan own_plan(const BatchItem& item, std::size_t index, PlanOptions options) {
  options.element_size = item.element_size;
  try {
    return plan_redistribute(item.from, item.to, options);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(concat("redistribute_all: tensor ", index, ": ", error.what()));
  }
}

/// Returns what a tensor adds to a batch; nothing when it had better go alone.
std::optional<Passenger> find_passenger(const BatchItem& item, std::size_t index,
                                        const PlanOptions& options) {
  const RedistributePlan alone = own_plan(item, index, options);
  if (alone.is_local()) return std::nullopt;
  const detail::Roles roles(item.from, item.to);
  PlanOptions unlimited{.element_size = item.element_size, .cost = options.cost};
  Step step = detail::direct_step(roles, unlimited);
  Traffic bytes = step.worst;
  bytes.messages = 0;
  if (options.cost.cost_ps(bytes) - options.cost.launch_ps > alone.cost_ps()) return std::nullopt;
  const std::int64_t message_bytes = detail::most_exchanged(roles) * item.element_size;
  if (message_bytes > options.staging_budget - padding_of(step)) return std::nullopt;
  return Passenger{index, std::move(step), message_bytes};
}

/// How many bytes a batch grows by when a tensor joins it.
std::int64_t growth(const Batch& batch, const Passenger& passenger) {
  const auto is_on_same_mesh = [&](const Step& step) {
    return step.from.mesh().same_ranks(passenger.step.from.mesh()) &&
           step.to.mesh().same_ranks(passenger.step.to.mesh());
  };
  const bool is_padded = std::any_of(batch.steps.begin(), batch.steps.end(), is_on_same_mesh);
  return passenger.message_bytes + (is_padded ? 0 : padding_of(passenger.step));
}

void unite(std::vector<std::int64_t>& all, const std::vector<std::int64_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

}  // namespace

std::vector<std::int64_t> Batch::ranks_with(std::int64_t rank) const {
  std::vector<std::int64_t> ranks;
  std::vector<std::int64_t> dims;
  const MeshShape& mesh = steps.front().from.mesh();
  bool is_one_mesh = true;
  for (const auto& step : steps) {
    is_one_mesh &= !step.mesh_dims.empty() && step.from.mesh().same_ranks(mesh);
    unite(dims, step.mesh_dims);
    unite(ranks, step.from.mesh().ranks());
    unite(ranks, step.to.mesh().ranks());
  }
  if (!std::binary_search(ranks.begin(), ranks.end(), rank)) return {};
  if (!is_one_mesh) return ranks;
  ranks = mesh.slice_dims(dims, rank).ranks();
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

BatchPlan plan_redistribute_all(std::span<const BatchItem> items, const PlanOptions& options) {
  BatchPlan plan;
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto passenger = find_passenger(items[i], i, options);
    if (!passenger) {
      plan.alone.push_back(i);
      continue;
    }
    if (plan.batches.empty() || growth(plan.batches.back(), *passenger) >
                                    options.staging_budget - plan.batches.back().staging_bytes) {
      plan.batches.emplace_back();
    }
    Batch& batch = plan.batches.back();
    batch.items.push_back(i);
    batch.staging_bytes += growth(batch, *passenger);
    batch.steps.push_back(std::move(passenger->step));
  }
  std::erase_if(plan.batches, [&](const Batch& batch) {
    if (batch.items.size() > 1) return false;
    plan.alone.push_back(batch.items.front());
    return true;
  });
  std::sort(plan.alone.begin(), plan.alone.end());
  return plan;
}

}  // namespace tessera
