#include "tessera/sharded/budget_planner.h"

#include <algorithm>
#include <string>

#include <torch/nn/module.h>

#include "tessera/base/check.h"
#include "tessera/sharded/budget_cuts.h"
#include "tessera/sharded/process_group.h"

namespace tessera::sharded {
namespace {

using detail::WeightSize;

/// The parameters of a module, each once, with all paths of each.
struct Weights {
  std::vector<std::vector<std::string>> paths;
  std::vector<WeightSize> sizes;
  /// Of the buffers, which every rank holds.
  std::int64_t other_bytes = 0;

  explicit Weights(const torch::nn::Module& module) {
    std::vector<at::Tensor> tensors;
    for (const auto& item : module.named_parameters()) {
      const auto known = std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) {
        return tensor.is_same(item.value());
      });
      if (known != tensors.end()) {
        paths[static_cast<std::size_t>(known - tensors.begin())].push_back(item.key());
        continue;
      }
      tensors.push_back(item.value());
      paths.push_back({item.key()});
      sizes.push_back(size_of(item.value()));
    }
    for (const auto& buffer : module.buffers()) {
      if (buffer.defined()) other_bytes += size_of(buffer).bytes();
    }
  }

  static WeightSize size_of(const at::Tensor& tensor) {
    return {tensor.sizes().vec(), static_cast<std::int64_t>(tensor.element_size())};
  }
};

}  // namespace

BudgetPlanner::BudgetPlanner(Options options, const std::optional<Group>& group)
    : options_(options), ranks_((group ? *group : current_process_group()).ranks()) {
  TESSERA_CHECK(options_.bytes_per_rank >= 0, "BudgetPlanner: a budget of ",
                options_.bytes_per_rank, " bytes given; it must be >= 0");
  TESSERA_CHECK(options_.copies >= 1, "BudgetPlanner: ", options_.copies,
                " copies given; a parameter is held at least once");
}

ShardingPlan BudgetPlanner::build_plan(const torch::nn::Module& module) const {
  const Weights weights(module);
  const auto cuts =
      detail::budget_cuts(weights.sizes, weights.other_bytes, std::ssize(ranks_), options_);
  ShardingPlan plan;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (cuts[i].dim < 0) continue;
    for (const auto& path : weights.paths[i]) {
      plan.plan.emplace(path, ChunkShardingSpec::over(cuts[i].dim, ranks_));
    }
  }
  return plan;
}

std::int64_t BudgetPlanner::held_bytes(const torch::nn::Module& module,
                                       const ShardingPlan& plan) const {
  const Weights weights(module);
  std::int64_t held = 0;
  for (std::size_t i = 0; i < weights.sizes.size(); ++i) {
    const WeightSize& size = weights.sizes[i];
    const bool is_sharded = plan.plan.count(weights.paths[i].front()) > 0;
    held += is_sharded ? detail::best_cut(size, std::ssize(ranks_)).bytes : size.bytes();
  }
  return held * options_.copies + weights.other_bytes;
}

}  // namespace tessera::sharded
