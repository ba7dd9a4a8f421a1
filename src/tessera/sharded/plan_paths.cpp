#include "tessera/sharded/plan_paths.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/nn/near_names.h"
#include "tessera/nn/path_pattern.h"

namespace tessera::sharded::detail {
namespace {

using nn::detail::ModulePlace;

constexpr const char* kName = "shard_module";

bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

/// The paths that a key stands for. `what` says what they are paths of.
std::vector<std::string> expand(const std::string& key, const std::vector<std::string>& paths,
                                const char* what) {
  std::vector<std::string> found;
  for (const auto& path : paths) {
    if (is_pattern(key) ? nn::detail::matches(key, path) : key == path) found.push_back(path);
  }
  TESSERA_CHECK(!found.empty(), kName, ": the plan has '", key, "', which is no ", what, "; ",
                nn::detail::near_names_text(key, paths));
  return found;
}

/// Which key decides about each path: the path itself, or the pattern that stands for it.
template <typename Map>
std::map<std::string, std::string> keys_by_path(const Map& entries,
                                                const std::vector<std::string>& paths,
                                                const char* what) {
  std::map<std::string, std::string> keys;
  for (const auto& [key, entry] : entries) {
    for (const auto& path : expand(key, paths, what)) {
      const auto [known, is_new] = keys.emplace(path, key);
      if (is_new || key == path) {
        known->second = key;
      } else if (known->second != path) {
        TESSERA_CHECK(entries.at(known->second) == entry, kName, ": '", known->second, "' and '",
                      key, "' both stand for '", path,
                      "', and say different things; name that path itself");
      }
    }
  }
  return keys;
}

bool is_at_or_below(const std::string& path, const std::string& above) {
  return path == above || path.starts_with(above + ".");
}

std::string parent_of(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

/// The module, and what is in it.
class Tree {
 public:
  explicit Tree(torch::nn::Module& root) : root_(root) {
    for (const auto& place : nn::detail::modules_below(root)) {
      modules_.push_back(place.path);
      for (const auto& parameter : place.module->named_parameters(false)) {
        tensors_.push_back(nn::detail::joined_path(place.path, parameter.key()));
      }
      for (const auto& buffer : place.module->named_buffers(false)) {
        tensors_.push_back(nn::detail::joined_path(place.path, buffer.key()));
      }
    }
  }

  [[nodiscard]] ModulePlace module_at(const std::string& path) const {
    return nn::detail::module_at(kName, root_, path);
  }
  [[nodiscard]] const std::vector<std::string>& modules() const { return modules_; }
  [[nodiscard]] const std::vector<std::string>& tensors() const { return tensors_; }

 private:
  torch::nn::Module& root_;
  std::vector<std::string> modules_;
  std::vector<std::string> tensors_;
};

using Specs = std::map<std::string, ShardingSpec>;
using Sharders = std::map<std::string, std::shared_ptr<const Sharder>>;

/// Takes the plan's entries apart by their kinds.
void separate(const ShardingPlan& plan, Specs& specs, Sharders& sharders) {
  for (const auto& [key, entry] : plan.plan) {
    if (const auto* chunks = std::get_if<ChunkShardingSpec>(&entry)) {
      specs.emplace(key, *chunks);
    } else if (const auto* boxes = std::get_if<EnumerableShardingSpec>(&entry)) {
      specs.emplace(key, *boxes);
    } else {
      const auto& sharder = std::get<std::shared_ptr<const Sharder>>(entry);
      TESSERA_CHECK(sharder != nullptr, kName,
                    ": Only `ShardingSpec` and `Sharder` are supported to shard '", key,
                    "', and a null pointer was given");
      TESSERA_CHECK(!key.empty(), kName, ": Module path must not be empty for custom sharder ",
                    sharder->name(), "; the root has no parent in which it could be replaced");
      sharders.emplace(key, sharder);
    }
  }
}

void add_sharders(const Tree& tree, const Sharders& sharders, ResolvedPlan& resolved) {
  for (const auto& [path, key] : keys_by_path(sharders, tree.modules(), "module")) {
    TESSERA_CHECK(!path.empty(), kName, ": Module path must not be empty for custom sharder, and '",
                  key, "' stands for the root too; write '*' for the modules below it");
    const auto* above = resolved.sharder_above(path);
    TESSERA_CHECK(above == nullptr, kName, ": ShardingPlan is in-valid: it has a Sharder for '",
                  path, "', but there's already a Sharder entry for module '", above->place.path,
                  "', which takes care of all that is in it");
    resolved.sharders.push_back({tree.module_at(path), sharders.at(key)});
  }
}

void add_parameters(const Tree& tree, const Specs& specs, ResolvedPlan& resolved) {
  // A path that is no tensor's says best by itself what is wrong with it.
  for (const auto& [key, spec] : specs) {
    if (is_pattern(key) || std::count(tree.tensors().begin(), tree.tensors().end(), key) > 0)
      continue;
    resolved.parameters.push_back(
        {key, tree.module_at(parent_of(key)).module, last_part(key), spec});
  }
  Specs known = specs;
  for (const auto& parameter : resolved.parameters) known.erase(parameter.path);
  for (const auto& [path, key] : keys_by_path(known, tree.tensors(), "parameter or buffer")) {
    resolved.parameters.push_back(
        {path, tree.module_at(parent_of(path)).module, last_part(path), known.at(key)});
  }
  for (const auto& parameter : resolved.parameters) {
    const auto* above = resolved.sharder_above(parent_of(parameter.path));
    TESSERA_CHECK(
        above == nullptr, kName, ": ShardingPlan is in-valid: it shards parameter '",
        parameter.path, "', but there's already a Sharder entry for module '", above->place.path,
        "'; parameter sharding should not conflict with the submodule tree that a Sharder "
        "is working with");
  }
}

/// Throws unless a module keeps being called when the Sharders are done.
void check_stays(const ModulePlace& place, const ResolvedPlan& resolved) {
  const auto* above = resolved.sharder_above(place.path);
  TESSERA_CHECK(above == nullptr || above->place.path == place.path, kName,
                ": ShardingPlan is in-valid: it changes what module '", place.path,
                "' returns, but there's already a Sharder entry for module '", above->place.path,
                "' above it");
}

std::string entry_text(const PlanEntry& entry) {
  if (const auto* sharder = std::get_if<std::shared_ptr<const Sharder>>(&entry)) {
    return *sharder == nullptr ? "null" : (*sharder)->name();
  }
  if (const auto* chunks = std::get_if<ChunkShardingSpec>(&entry)) return concat(*chunks);
  return concat(std::get<EnumerableShardingSpec>(entry));
}

}  // namespace

const ResolvedPlan::Sharded* ResolvedPlan::sharder_above(const std::string& path) const {
  const auto found = std::find_if(sharders.begin(), sharders.end(), [&](const Sharded& sharded) {
    return is_at_or_below(path, sharded.place.path);
  });
  return found == sharders.end() ? nullptr : &*found;
}

ResolvedPlan resolve(torch::nn::Module& root, const ShardingPlan& plan) {
  const Tree tree(root);
  Specs specs;
  Sharders sharders;
  separate(plan, specs, sharders);
  ResolvedPlan resolved;
  add_sharders(tree, sharders, resolved);
  add_parameters(tree, specs, resolved);
  for (const auto& [path, key] : keys_by_path(plan.output_plan, tree.modules(), "module")) {
    resolved.outputs.push_back({tree.module_at(path), plan.output_plan.at(key)});
    check_stays(resolved.outputs.back().place, resolved);
  }
  std::map<std::string, bool> locals;
  for (const auto& path : plan.return_local_tensor) locals.emplace(path, true);
  for (const auto& [path, key] : keys_by_path(locals, tree.modules(), "module")) {
    resolved.locals.push_back(tree.module_at(path));
    check_stays(resolved.locals.back(), resolved);
  }
  return resolved;
}

std::string describe(const ShardingPlan& plan) {
  std::vector<std::string> parts;
  for (const auto& [path, entry] : plan.plan) {
    parts.push_back(concat('\'', path, "': ", entry_text(entry)));
  }
  for (const auto& [path, spec] : plan.output_plan) {
    parts.push_back(concat("output of '", path, "': ", spec));
  }
  for (const auto& path : plan.return_local_tensor) {
    parts.push_back(concat("local tensor of '", path, '\''));
  }
  return concat('{', joined(parts), '}');
}

}  // namespace tessera::sharded::detail
