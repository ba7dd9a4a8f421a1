#include "tessera/nn/module_paths.h"

#include <algorithm>

#include <c10/util/Type.h>

#include "tessera/base/check.h"
#include "tessera/nn/near_names.h"

namespace tessera::nn::detail {
namespace {

void add_below(const ModulePlace& place, std::vector<ModulePlace>& places) {
  places.push_back(place);
  for (const auto& child : place.module->named_children()) {
    add_below({joined_path(place.path, child.key()), child.value().get(), place.module}, places);
  }
}

}  // namespace

std::string joined_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::vector<ModulePlace> modules_below(torch::nn::Module& root) {
  std::vector<ModulePlace> places;
  add_below({"", &root, nullptr}, places);
  return places;
}

ModulePlace module_at(const char* function, torch::nn::Module& root, const std::string& path) {
  const auto places = modules_below(root);
  const auto found = std::find_if(places.begin(), places.end(),
                                  [&](const ModulePlace& place) { return place.path == path; });
  if (found != places.end()) return *found;
  std::vector<std::string> paths;
  for (const auto& place : places) {
    if (!place.path.empty()) paths.push_back(place.path);
  }
  TESSERA_CHECK(false, function, ": ", holder_name(root), " has no module '", path, "'; ",
                near_names_text(path, paths));
}

std::string holder_name(const torch::nn::Module& module) {
  std::string name = c10::demangle(typeid(module).name());
  for (const std::string wrapper : {"tessera::nn::HookedImpl<", "tessera::nn::ReplaceableImpl<"}) {
    if (!name.starts_with(wrapper)) continue;
    name = name.substr(wrapper.size());
    name = name.substr(0, name.find_last_not_of("> ") + 1);
  }
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

std::string describe(const ModulePlace& place) {
  const std::string type = holder_name(*place.module);
  if (place.path.empty()) return concat("the module (", type, ")");
  return concat("module '", place.path, "' (", type, ")");
}

}  // namespace tessera::nn::detail
