#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/module_paths.h"
#include "tessera/sharded/sharding_plan.h"

namespace tessera::sharded::detail {

/// A plan whose paths and patterns have become places in a module. Nothing but the paths was checked.
struct ResolvedPlan {
  struct Parameter {
    std::string path;
    torch::nn::Module* module;
    /// Within the module.
    std::string name;
    ShardingSpec spec;
  };
  struct Sharded {
    nn::detail::ModulePlace place;
    std::shared_ptr<const Sharder> sharder;
  };
  struct Output {
    nn::detail::ModulePlace place;
    ShardingSpec spec;
  };

  std::vector<Parameter> parameters;
  std::vector<Sharded> sharders;
  std::vector<Output> outputs;
  std::vector<nn::detail::ModulePlace> locals;

  /// The Sharder whose module is at `path` or above it; null when there is none.
  [[nodiscard]] const Sharded* sharder_above(const std::string& path) const;
};

/// Returns where a plan's paths lead. Throws `InvalidArgument` for paths that lead nowhere, entries of no
/// kind, entries that stand for the same, and what conflicts with a Sharder.
[[nodiscard]] ResolvedPlan resolve(torch::nn::Module& root, const ShardingPlan& plan);

/// Everything that a plan says, in words.
[[nodiscard]] std::string describe(const ShardingPlan& plan);

}  // namespace tessera::sharded::detail
