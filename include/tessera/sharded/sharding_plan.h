#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/comm/group.h"
#include "tessera/sharded/sharding_spec.h"

namespace torch::nn {
class AnyModule;
class Module;
}  // namespace torch::nn

namespace tessera::sharded {

/// Shards a whole module in its own way, by making another one that takes its place.
class Sharder {
 public:
  virtual ~Sharder() = default;

  /// Throws `InvalidArgument` when it cannot shard this module. Called on all members of the group
  /// before anything is changed; must change nothing itself.
  virtual void check(const torch::nn::Module& module, const Group& group) const = 0;

  /// Returns the module that takes the place of `module`: its `forward` must take the same arguments
  /// and return the same. Called by all members of the group.
  [[nodiscard]] virtual torch::nn::AnyModule shard(torch::nn::Module& module, std::int64_t src_rank,
                                                   const Group& group) const = 0;

  /// False for one that changes `module` itself; `shard` then returns an empty `AnyModule`. Such a one
  /// works on any module; others need a place where a module can be replaced, see `shard_module`.
  [[nodiscard]] virtual bool replaces_module() const { return true; }

  /// What it is called in messages; must be the same on all ranks.
  [[nodiscard]] virtual std::string name() const = 0;
};

/// What is done at one path: a parameter is sharded, or a module is given to a Sharder.
using PlanEntry =
    std::variant<ChunkShardingSpec, EnumerableShardingSpec, std::shared_ptr<const Sharder>>;

/// How a module is sharded.
///
/// Paths are those of `named_parameters` and `named_modules`: `layers.0.fc1.weight`. They may be
/// patterns, as in `nn::ParallelPlan`: `*` stands for any characters within one part of a path, `**` for
/// any parts. A path without `*`, `?` and `[` goes before patterns that stand for it too.
struct ShardingPlan {
  /// What becomes of parameters (or buffers) and modules.
  std::map<std::string, PlanEntry> plan;
  /// How the DTensors that modules return are placed, by the modules' paths; `""` is the root.
  std::map<std::string, ShardingSpec> output_plan = {};
  /// Modules that return this rank's part, a plain tensor, instead of a DTensor; a dim that is cut into
  /// chunks of one element is taken away: [4, 16] over 4 ranks gives [16].
  std::vector<std::string> return_local_tensor = {};
};

/// Makes plans.
class ShardingPlanner {
 public:
  virtual ~ShardingPlanner() = default;
  /// Must return the same on all ranks.
  [[nodiscard]] virtual ShardingPlan build_plan(const torch::nn::Module& module) const = 0;
};

struct ShardModuleOptions {
  /// Make the parameters and buffers that the plan does not name DTensors too, replicated: operations
  /// do not mix DTensors with plain tensors. Those of a module are placed on the mesh of its sharded
  /// parameters, others on the mesh of all sharded parameters where they have only one, or on that of
  /// the group. What a Sharder takes care of stays as that leaves it.
  bool replicate_rest = true;
};

/// Shards a module as a plan says: parameters and Sharders, then what is left, then `output_plan`, then
/// `return_local_tensor`. All members of the group must call it, with the same plan.
///
/// `output_plan` and `return_local_tensor` need modules that can have hooks: `nn::Hooked` members and
/// elements of Sequentials. A Sharder that replaces its module needs a `nn::Replaceable` member or an
/// element of a Sequential, ModuleList or ModuleDict. Inputs must be DTensors, on the parameters' mesh:
/// `distribute_tensor(x, mesh_of(parameter), {Replicate()})`. `Partial` outputs are reduced before they
/// are returned as local tensors.
///
/// Everything is checked, and compared between the ranks, before the first change. Throws
/// `InvalidArgument` on all members, and changes nothing, for a path that leads nowhere (near ones are
/// named) or, with a Sharder, is empty; for what `shard_parameter` refuses; for a parameter, another
/// Sharder or a module beneath a Sharder's; for an entry of neither kind; for two patterns that stand for
/// the same path; for a module that cannot be replaced or have hooks (the message says how to change
/// it); for output specs that no DTensor can be placed by; and when plans or parameters differ.
void shard_module(torch::nn::Module& module, const ShardingPlan& plan, std::int64_t src_rank = 0,
                  const std::optional<Group>& group = std::nullopt,
                  const ShardModuleOptions& options = {});

}  // namespace tessera::sharded
