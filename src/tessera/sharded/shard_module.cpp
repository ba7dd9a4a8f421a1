#include <algorithm>
#include <map>
#include <set>

#include <torch/nn/modules/container/any.h>

#include "tessera/base/check.h"
#include "tessera/nn/hook_points.h"
#include "tessera/nn/replace_module.h"
#include "tessera/nn/replaceable.h"
#include "tessera/sharded/output_hooks.h"
#include "tessera/sharded/parameter_change.h"
#include "tessera/sharded/plan_paths.h"
#include "tessera/sharded/state.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::sharded {
namespace {

using detail::ParameterChange;
using detail::ResolvedPlan;
using nn::detail::ModulePlace;

constexpr const char* kName = "shard_module";

/// True when the parent's calls still reach the module itself after it was replaced.
bool passes_calls_on(const ModulePlace& place) {
  return dynamic_cast<const nn::ReplaceableModule*>(place.module) != nullptr &&
         dynamic_cast<const nn::Hookable*>(place.module) != nullptr;
}

/// All that is going to happen to a module, found and checked before any of it does.
class ModuleSharding {
 public:
  ModuleSharding(torch::nn::Module& root, const ShardingPlan& plan, const Group& group)
      : root_(root), group_(group), resolved_(detail::resolve(root, plan)) {
    for (const auto& parameter : resolved_.parameters) add(parameter);
    for (const auto& [place, sharder] : resolved_.sharders) {
      sharder->check(*place.module, group_);
      if (sharder->replaces_module()) nn::detail::check_replaceable(kName, place);
    }
    for (const auto& [place, spec] : resolved_.outputs) {
      check_hookable(place);
      detail::check_output_spec(place.path, spec);
      check_ranks(place.path, spec);
    }
    for (const auto& place : resolved_.locals) check_hookable(place);
  }

  /// Adds what the plan does not name, as replicated.
  void replicate_rest() {
    std::map<const torch::nn::Module*, DeviceMesh> meshes;
    std::set<std::string> different;
    for (const auto& parameter : resolved_.parameters) {
      const auto& change = *std::find_if(changes_.begin(), changes_.end(), [&](const auto& one) {
        return one.tensor.is_same(detail::own_tensor(kName, *parameter.module, parameter.name));
      });
      meshes.emplace(parameter.module, change.mesh);
      different.insert(change.mesh.to_string());
    }
    const DeviceMesh rest = different.size() == 1 ? meshes.begin()->second
                                                  : DeviceMesh::from_group(group_, device_type());
    for (const auto& place : nn::detail::modules_below(root_)) {
      if (resolved_.sharder_above(place.path) != nullptr) continue;
      const auto own = meshes.find(place.module);
      add_rest(place, own == meshes.end() ? rest : own->second);
    }
  }

  /// What must be the same on all ranks.
  [[nodiscard]] std::string describe() const {
    std::vector<std::string> parts;
    for (const auto& change : changes_) parts.push_back(detail::describe(change));
    for (const auto& [place, sharder] : resolved_.sharders) {
      for (const auto& item : place.module->named_parameters()) {
        parts.push_back(concat(nn::detail::joined_path(place.path, item.key()), ' ',
                               c10::getDtypeNames(item.value().scalar_type()).first, '[',
                               joined(item.value().sizes(), ","), ']'));
      }
    }
    return concat('[', joined(parts), ']');
  }

  void apply(std::int64_t src_rank) const {
    for (const auto& change : changes_) detail::apply(change, src_rank, group_);
    // The places still refer to the modules that are replaced.
    std::vector<std::shared_ptr<torch::nn::Module>> replaced;
    for (const auto& [place, sharder] : resolved_.sharders) {
      replaced.push_back(place.module->shared_from_this());
      const torch::nn::AnyModule module = sharder->shard(*place.module, src_rank, group_);
      if (module.is_empty()) continue;
      TESSERA_CHECK(sharder->replaces_module(), kName, ": ", sharder->name(),
                    " returned a module for '", place.path,
                    "', but said that it replaces none (replaces_module)");
      nn::detail::replace_module(place, module);
    }
    for (const auto& [place, spec] : resolved_.outputs) {
      hooks_of(place).add_forward_hook(detail::reshard_output_hook(spec));
    }
    for (const auto& place : resolved_.locals) {
      hooks_of(place).add_forward_hook(detail::local_tensor_hook());
    }
  }

 private:
  void add(const ResolvedPlan::Parameter& parameter) {
    const at::Tensor tensor = detail::own_tensor(kName, *parameter.module, parameter.name);
    auto change = detail::plan_change(kName, parameter.path, tensor, parameter.spec, group_);
    if (const auto* known = change_of(tensor)) {
      TESSERA_CHECK(known->layout == change.layout, kName, ": '", known->path, "' and '",
                    change.path, "' are the same tensor, but the plan shards them as ",
                    known->layout, " and ", change.layout);
      return;
    }
    changes_.push_back(std::move(change));
  }

  void add_rest(const ModulePlace& place, const DeviceMesh& mesh) {
    const auto add_tensor = [&](const std::string& name, const at::Tensor& tensor) {
      if (!tensor.defined() || is_dtensor(tensor) || change_of(tensor) != nullptr) return;
      const std::string path = nn::detail::joined_path(place.path, name);
      detail::check_changeable(kName, path, tensor);
      const Placements placements(static_cast<std::size_t>(mesh.ndim()), Replicate());
      changes_.push_back(
          {path, tensor, mesh, Layout(mesh.shape(), placements, tensor.sizes().vec())});
    };
    for (const auto& item : place.module->named_parameters(false))
      add_tensor(item.key(), item.value());
    for (const auto& item : place.module->named_buffers(false))
      add_tensor(item.key(), item.value());
  }

  [[nodiscard]] const ParameterChange* change_of(const at::Tensor& tensor) const {
    const auto found = std::find_if(changes_.begin(), changes_.end(), [&](const auto& change) {
      return change.tensor.is_same(tensor);
    });
    return found == changes_.end() ? nullptr : &*found;
  }

  [[nodiscard]] std::string device_type() const {
    for (const auto& parameter : root_.parameters()) return detail::device_type_of(parameter);
    return "cpu";
  }

  /// The module must be able to have hooks, before a Sharder replaces it and after.
  void check_hookable(const ModulePlace& place) const {
    nn::detail::check_hookable(kName, place);
    const auto* sharded = resolved_.sharder_above(place.path);
    if (sharded == nullptr || !sharded->sharder->replaces_module() || passes_calls_on(place))
      return;
    TESSERA_CHECK(place.parent != nullptr &&
                      nn::detail::holder_name(*place.parent) == "torch::nn::Sequential",
                  kName, ": ", nn::detail::describe(place), " is replaced by ",
                  sharded->sharder->name(),
                  " where its hooks are lost; declare the member as tessera::nn::Replaceable<",
                  nn::detail::holder_name(*place.module), ">");
  }

  void check_ranks(const std::string& path, const ShardingSpec& spec) const {
    std::vector<std::int64_t> ranks;
    if (const auto* chunks = std::get_if<ChunkShardingSpec>(&spec)) {
      for (const auto& placement : chunks->placements()) ranks.push_back(placement.rank);
    } else {
      for (const auto& shard : std::get<EnumerableShardingSpec>(spec).shards()) {
        ranks.push_back(shard.placement.rank);
      }
    }
    for (const auto rank : ranks) {
      TESSERA_CHECK(std::count(group_.ranks().begin(), group_.ranks().end(), rank) == 1, kName,
                    ": the output_plan for '", path, "' names rank ", rank,
                    ", which does not exist in group ", group_.name(), " of ranks [",
                    joined(group_.ranks(), ","), "]");
    }
  }

  [[nodiscard]] nn::Hookable& hooks_of(const ModulePlace& place) const {
    const bool is_replaced = resolved_.sharder_above(place.path) != nullptr;
    const ModulePlace now = is_replaced && !passes_calls_on(place)
                                ? nn::detail::module_at(kName, root_, place.path)
                                : place;
    return *nn::detail::hook_points(now).after;
  }

  torch::nn::Module& root_;
  Group group_;
  ResolvedPlan resolved_;
  std::vector<ParameterChange> changes_;
};

}  // namespace

void shard_module(torch::nn::Module& module, const ShardingPlan& plan, std::int64_t src_rank,
                  const std::optional<Group>& its_group, const ShardModuleOptions& options) {
  const Group group = detail::group_or_current(its_group);
  detail::Agreement agreement(kName, group);
  std::optional<ModuleSharding> sharding;
  agreement.require_no_throw([&] {
    detail::check_member(kName, "src_rank", src_rank, group);
    sharding.emplace(module, plan, group);
    if (options.replicate_rest) sharding->replicate_rest();
  });
  agreement.same("src_rank", src_rank);
  agreement.same("plan", detail::describe(plan));
  agreement.same("parameters", sharding ? sharding->describe() : "");
  agreement.meet();
  sharding->apply(src_rank);
}

}  // namespace tessera::sharded
