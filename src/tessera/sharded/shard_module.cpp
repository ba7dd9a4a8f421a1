#include <algorithm>
#include <map>
#include <set>

#include <torch/nn/modules/container/any.h>

#include "tessera/base/check.h"
#include "tessera/nn/hook_points.h"
#include "tessera/nn/module_tensors.h"
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
    for (const auto& sharded : resolved_.sharders) add(sharded);
    for (const auto& [place, spec] : resolved_.outputs) {
      check_hookable(place);
      detail::check_output_spec(place.path, spec, group_);
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
    std::map<const torch::nn::Module*, torch::nn::AnyModule> instead;
    for (const auto& [place, sharder] : resolved_.sharders) {
      replaced.push_back(place.module->shared_from_this());
      auto found = instead.find(place.module);
      if (found == instead.end()) {
        found =
            instead.emplace(place.module, sharder->shard(*place.module, src_rank, group_)).first;
      }
      TESSERA_CHECK(found->second.is_empty() != sharder->replaces_module(), kName, ": ",
                    sharder->name(), " returned ", found->second.is_empty() ? "no" : "a",
                    " module for '", place.path, "', but said that it replaces ",
                    sharder->replaces_module() ? "it" : "none", " (replaces_module)");
      if (sharder->replaces_module()) nn::detail::replace_module(place, found->second);
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

  /// A module may be at several places, and a tensor in several modules: what a Sharder is given is
  /// changed by nobody else.
  void add(const ResolvedPlan::Sharded& sharded) {
    const auto& [place, sharder] = sharded;
    sharder->check(*place.module, group_);
    if (sharder->replaces_module()) nn::detail::check_replaceable(kName, place);
    const auto [known, is_new] = cared_modules_.emplace(place.module, &sharded);
    TESSERA_CHECK(is_new || known->second->sharder == sharder, kName, ": '",
                  known->second->place.path, "' and '", place.path,
                  "' are the same module, but the plan gives it to ",
                  known->second->sharder->name(), " and to another ", sharder->name());
    if (!is_new) return;
    const auto tensors = nn::detail::all_tensors(*place.module);
    for (const auto& [name, tensor, is_buffer] : tensors) {
      const std::string here = nn::detail::joined_path(place.path, name);
      const auto* change = change_of(tensor);
      TESSERA_CHECK(change == nullptr, kName,
                    ": ShardingPlan is in-valid, trying to shard a parameter: ", change->path,
                    ", but it is the same tensor as ", here,
                    ", and there's already a Sharder entry for module ", place.path);
      const auto* other = carer_of(tensor);
      TESSERA_CHECK(other == nullptr, kName, ": '", *other, "' and '", here,
                    "' are the same tensor, but a Sharder entry is there for each of their "
                    "modules; give one Sharder a module that both are in");
    }
    for (const auto& [name, tensor, is_buffer] : tensors) {
      cared_tensors_.push_back({nn::detail::joined_path(place.path, name), tensor, is_buffer});
    }
  }

  void add_rest(const ModulePlace& place, const DeviceMesh& mesh) {
    for (const auto& [name, tensor, is_buffer] : nn::detail::own_tensors(*place.module)) {
      if (is_dtensor(tensor) || change_of(tensor) != nullptr || carer_of(tensor) != nullptr) {
        continue;
      }
      changes_.push_back(
          detail::plan_replicated(kName, nn::detail::joined_path(place.path, name), tensor, mesh));
    }
  }

  [[nodiscard]] const ParameterChange* change_of(const at::Tensor& tensor) const {
    const auto found = std::find_if(changes_.begin(), changes_.end(), [&](const auto& change) {
      return change.tensor.is_same(tensor);
    });
    return found == changes_.end() ? nullptr : &*found;
  }

  /// Where a tensor is that a Sharder takes care of; null when none does.
  [[nodiscard]] const std::string* carer_of(const at::Tensor& tensor) const {
    const auto found = std::find_if(cared_tensors_.begin(), cared_tensors_.end(),
                                    [&](const auto& item) { return item.tensor.is_same(tensor); });
    return found == cared_tensors_.end() ? nullptr : &found->name;
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
  /// What Sharders take care of; tensors with their paths.
  std::map<const torch::nn::Module*, const ResolvedPlan::Sharded*> cared_modules_;
  std::vector<nn::detail::NamedTensor> cared_tensors_;
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
