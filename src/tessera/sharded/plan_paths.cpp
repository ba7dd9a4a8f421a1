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

/// What the paths of a plan may stand for: modules, or parameters and buffers.
struct Paths {
  const char* what;
  std::vector<std::string> all;
  /// The module that they begin in.
  std::string root;
};

/// The paths that a key stands for.
std::vector<std::string> expand(const std::string& key, const Paths& paths) {
  nn::detail::check_pattern(kName, key);
  std::vector<std::string> found;
  for (const auto& path : paths.all) {
    if (is_pattern(key) ? nn::detail::matches(key, path) : key == path) found.push_back(path);
  }
  if (!found.empty()) return found;
  std::vector<std::string> names = paths.all;
  std::erase(names, "");  // The root is no name to suggest.
  TESSERA_CHECK(false, kName, ": ", paths.root, " has no attribute `", key,
                "`: the plan names it, but there is no such ", paths.what, "; ",
                nn::detail::near_names_text(key, names));
}

/// Which key decides about each path: the path itself, or the pattern that stands for it.
template <typename Map>
std::map<std::string, std::string> keys_by_path(const Map& entries, const Paths& paths) {
  std::map<std::string, std::string> keys;
  for (const auto& [key, entry] : entries) {
    for (const auto& path : expand(key, paths)) {
      // A path that is named itself is no pattern's, whichever comes first.
      if (key != path && entries.count(path) > 0) continue;
      const auto [known, is_new] = keys.emplace(path, key);
      TESSERA_CHECK(is_new || entries.at(known->second) == entry, kName, ": '", known->second,
                    "' and '", key, "' both stand for '", path,
                    "', and say different things; name that path itself");
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
    modules_ = {"module", {}, nn::detail::holder_name(root)};
    tensors_ = {"parameter or buffer", {}, nn::detail::holder_name(root)};
    for (const auto& place : nn::detail::modules_below(root)) {
      modules_.all.push_back(place.path);
      for (const auto& parameter : place.module->named_parameters(false)) {
        tensors_.all.push_back(nn::detail::joined_path(place.path, parameter.key()));
      }
      for (const auto& buffer : place.module->named_buffers(false)) {
        tensors_.all.push_back(nn::detail::joined_path(place.path, buffer.key()));
      }
    }
  }

  [[nodiscard]] ModulePlace module_at(const std::string& path) const {
    (void)expand(path, modules_);
    return nn::detail::module_at(kName, root_, path);
  }
  [[nodiscard]] const Paths& modules() const { return modules_; }
  [[nodiscard]] const Paths& tensors() const { return tensors_; }
  [[nodiscard]] bool has_tensor(const std::string& path) const {
    return std::count(tensors_.all.begin(), tensors_.all.end(), path) > 0;
  }

 private:
  torch::nn::Module& root_;
  Paths modules_;
  Paths tensors_;
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
      TESSERA_CHECK(!key.empty(), kName, ": Module path must not be empty for custom sharder! ",
                    sharder->name(),
                    " was given for the root, which has no parent where it could be replaced");
      sharders.emplace(key, sharder);
    }
  }
}

void add_sharders(const Tree& tree, const Sharders& sharders, ResolvedPlan& resolved) {
  for (const auto& [path, key] : keys_by_path(sharders, tree.modules())) {
    TESSERA_CHECK(!path.empty(), kName, ": Module path must not be empty for custom sharder! '",
                  key, "' stands for the root too; write '*' for the modules below it");
    const auto* above = resolved.sharder_above(path);
    TESSERA_CHECK(above == nullptr, kName,
                  ": ShardingPlan is in-valid, trying to shard a module: ", path,
                  ", but there's already a Sharder entry for module ", above->place.path,
                  ", which takes care of all that is in it");
    resolved.sharders.push_back({tree.module_at(path), sharders.at(key)});
  }
}

void add_parameters(const Tree& tree, const Specs& specs, ResolvedPlan& resolved) {
  // A path that is no tensor's says best by itself what is wrong with it.
  for (const auto& [key, spec] : specs) {
    if (is_pattern(key) || tree.has_tensor(key)) continue;
    resolved.parameters.push_back(
        {key, tree.module_at(parent_of(key)).module, last_part(key), spec});
  }
  Specs known = specs;
  for (const auto& parameter : resolved.parameters) known.erase(parameter.path);
  for (const auto& [path, key] : keys_by_path(known, tree.tensors())) {
    resolved.parameters.push_back(
        {path, tree.module_at(parent_of(path)).module, last_part(path), known.at(key)});
  }
  for (const auto& parameter : resolved.parameters) {
    const auto* above = resolved.sharder_above(parent_of(parameter.path));
    TESSERA_CHECK(above == nullptr, kName,
                  ": ShardingPlan is in-valid, trying to shard a parameter: ", parameter.path,
                  ", but there's already a Sharder entry for module ", above->place.path,
                  ", parameter sharding should not conflict with the submodule tree that a Sharder "
                  "is working with!");
  }
}

/// Throws unless a module keeps being called when the Sharders are done.
void check_stays(const ModulePlace& place, const ResolvedPlan& resolved) {
  const auto* above = resolved.sharder_above(place.path);
  TESSERA_CHECK(above == nullptr || above->place.path == place.path, kName,
                ": ShardingPlan is in-valid, trying to change what module ", place.path,
                " returns, but there's already a Sharder entry for module ", above->place.path,
                " above it");
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
  for (const auto& [path, key] : keys_by_path(plan.output_plan, tree.modules())) {
    resolved.outputs.push_back({tree.module_at(path), plan.output_plan.at(key)});
    check_stays(resolved.outputs.back().place, resolved);
  }
  std::map<std::string, bool> locals;
  for (const auto& path : plan.return_local_tensor) locals.emplace(path, true);
  for (const auto& [path, key] : keys_by_path(locals, tree.modules())) {
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
