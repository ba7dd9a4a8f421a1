#include "tessera/nn/hook_points.h"

#include <algorithm>

#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include "tessera/base/check.h"
#include "tessera/nn/sequential_element.h"

namespace tessera::nn::detail {
namespace {

using torch::nn::AnyModule;
using torch::nn::SequentialImpl;

/// The element of the parent that a module is; null when the parent is no Sequential.
AnyModule* element_in_parent(const ModulePlace& place) {
  auto* parent = dynamic_cast<SequentialImpl*>(place.parent);
  if (parent == nullptr) return nullptr;
  const auto found = std::find_if(parent->begin(), parent->end(), [&](const AnyModule& element) {
    return element.ptr().get() == place.module;
  });
  return found == parent->end() ? nullptr : &*found;
}

/// Gives an element hooks, if it has none yet.
Hookable* hooked_element(AnyModule& element) {
  if (auto* own = dynamic_cast<Hookable*>(element.ptr().get())) return own;
  if (element.type_info() != typeid(SequentialElement)) {
    element = AnyModule(std::make_shared<SequentialElement>(element));
  }
  return &element.get<SequentialElement>();
}

bool is_list(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::ModuleListImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::ModuleDictImpl*>(&module) != nullptr;
}

/// Refuses an element of a list, which its parent hands out by the element's own type.
void refuse_element(const char* function, const ModulePlace& place) {
  const std::string list = holder_name(*place.parent);
  const std::string hooked = concat("tessera::nn::Hooked<", holder_name(*place.module), ">");
  TESSERA_CHECK(false, function, ": ", describe(place), " cannot have hooks, because a ", list,
                " hands it out by its own type, and its forward is called directly; put a ", hooked,
                " (from tessera/nn/hooked.h) into the list and call it as one, as<", hooked,
                ">(), or make the list a torch::nn::Sequential, whose elements have hooks");
}

/// A plain Sequential, whose calls are those of its elements. Derived classes call as they like.
SequentialImpl* as_sequential(torch::nn::Module& module) {
  return typeid(module) == typeid(SequentialImpl) ? dynamic_cast<SequentialImpl*>(&module)
                                                  : nullptr;
}

}  // namespace

void check_hookable(const char* function, const ModulePlace& place, const char* advice) {
  if (dynamic_cast<const Hookable*>(place.module) != nullptr) return;
  if (element_in_parent(place) != nullptr) return;
  TESSERA_CHECK(!is_list(*place.module), function, ": ", describe(place),
                " cannot have hooks, because it has no forward; give them to its elements: '",
                joined_path(place.path, "*"), "'");
  if (const auto* sequential = as_sequential(*place.module)) {
    TESSERA_CHECK(!sequential->is_empty(), function, ": ", describe(place),
                  " cannot have hooks, because it is empty; add its elements first");
    return;
  }
  if (place.parent != nullptr && is_list(*place.parent)) refuse_element(function, place);
  const std::string type = holder_name(*place.module);
  const bool is_root = place.path.empty();
  TESSERA_CHECK(
      false, function, ": ", describe(place),
      " cannot have hooks, because libtorch calls its forward directly; ",
      is_root ? "make it a tessera::nn::Hooked<" : "declare the member as tessera::nn::Hooked<",
      type, "> (from tessera/nn/hooked.h), or put it into a torch::nn::Sequential", advice);
}

HookPoints hook_points(const ModulePlace& place) {
  if (auto* own = dynamic_cast<Hookable*>(place.module)) return {own, own};
  if (auto* element = element_in_parent(place)) {
    auto* hooked = hooked_element(*element);
    return {hooked, hooked};
  }
  auto* sequential = as_sequential(*place.module);
  TESSERA_INTERNAL_CHECK(sequential != nullptr, describe(place), " has no place for hooks");
  return {hooked_element(*sequential->begin()), hooked_element(*(sequential->end() - 1))};
}

}  // namespace tessera::nn::detail
