#include "tessera/sharded/budget_planner.h"

#include <algorithm>
#include <string>

#include <torch/nn/module.h>

#include "tessera/base/check.h"
#include "tessera/base/units.h"
#include "tessera/sharded/process_group.h"

namespace tessera::sharded {
namespace {

/// One parameter, whatever number of paths it has.
struct Weight {
  std::vector<std::string> paths;
  at::Tensor tensor;

  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(tensor.nbytes()); }
};

std::vector<Weight> weights_of(const torch::nn::Module& module) {
  std::vector<Weight> weights;
  for (const auto& item : module.named_parameters()) {
    const auto known = std::find_if(weights.begin(), weights.end(), [&](const Weight& weight) {
      return weight.tensor.is_same(item.value());
    });
    if (known == weights.end()) {
      weights.push_back({{item.key()}, item.value()});
    } else {
      known->paths.push_back(item.key());
    }
  }
  return weights;
}

/// The best cut of a weight over some ranks: which dim, and the bytes of the largest chunk.
struct Cut {
  std::int64_t dim = -1;
  std::int64_t bytes = 0;
};

Cut best_cut(const Weight& weight, std::int64_t ranks) {
  Cut best{-1, weight.bytes()};
  for (std::int64_t dim = 0; dim < weight.tensor.dim(); ++dim) {
    const std::int64_t size = weight.tensor.size(dim);
    if (size == 0) continue;
    const std::int64_t bytes = weight.bytes() / size * chunk_extent(size, ranks, 0).size;
    if (bytes < best.bytes) best = {dim, bytes};
  }
  return best;
}

std::string text(std::int64_t bytes) { return concat(bytes, " B (", format_bytes(bytes), ')'); }

}  // namespace

BudgetPlanner::BudgetPlanner(Options options, const std::optional<Group>& group)
    : options_(options), ranks_((group ? *group : current_process_group()).ranks()) {
  TESSERA_CHECK(options_.bytes_per_rank >= 0, "BudgetPlanner: a budget of ",
                options_.bytes_per_rank, " bytes given; it must be >= 0");
  TESSERA_CHECK(options_.copies >= 1, "BudgetPlanner: ", options_.copies,
                " copies given; a parameter is held at least once");
}

ShardingPlan BudgetPlanner::build_plan(const torch::nn::Module& module) const {
  auto weights = weights_of(module);
  std::stable_sort(weights.begin(), weights.end(),
                   [](const Weight& a, const Weight& b) { return a.bytes() > b.bytes(); });
  std::int64_t held = 0;
  for (const auto& weight : weights) held += weight.bytes();
  const std::int64_t budget = options_.bytes_per_rank / options_.copies;
  ShardingPlan plan;
  for (const auto& weight : weights) {
    if (held <= budget) break;
    const Cut cut = best_cut(weight, std::ssize(ranks_));
    if (cut.dim < 0) continue;
    held -= weight.bytes() - cut.bytes;
    for (const auto& path : weight.paths) {
      plan.plan.emplace(path, ChunkShardingSpec::over(cut.dim, ranks_));
    }
  }
  TESSERA_CHECK(held <= budget, "BudgetPlanner: ", text(options_.bytes_per_rank),
                " per rank given, but with everything sharded over ", ranks_.size(),
                " ranks the fullest one needs ", text(held * options_.copies), ", counting ",
                options_.copies, " cop", options_.copies == 1 ? "y" : "ies",
                "; give more, or use more ranks");
  return plan;
}

std::int64_t BudgetPlanner::held_bytes(const torch::nn::Module& module,
                                       const ShardingPlan& plan) const {
  std::int64_t held = 0;
  for (const auto& weight : weights_of(module)) {
    const bool is_sharded = plan.plan.count(weight.paths.front()) > 0;
    held += is_sharded ? best_cut(weight, std::ssize(ranks_)).bytes : weight.bytes();
  }
  return held * options_.copies;
}

}  // namespace tessera::sharded
