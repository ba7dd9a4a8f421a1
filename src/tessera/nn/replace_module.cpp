#include "tessera/nn/replace_module.h"

#include <algorithm>

#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>

#include "tessera/base/check.h"
#include "tessera/nn/replaceable.h"
#include "tessera/nn/sequential_element.h"

namespace tessera::nn::detail {
namespace {

using torch::nn::AnyModule;
using torch::nn::ModuleDictImpl;
using torch::nn::ModuleListImpl;
using torch::nn::SequentialImpl;

void replace_element(SequentialImpl& parent, const torch::nn::Module* old,
                     const AnyModule& module) {
  for (auto& element : parent) {
    if (element.ptr().get() != old) continue;
    if (element.type_info() == typeid(SequentialElement)) {
      element.get<SequentialElement>().module() = module;
    } else {
      element = module;
    }
  }
}

}  // namespace

void check_replaceable(const char* function, const ModulePlace& place) {
  TESSERA_CHECK(place.parent != nullptr, function, ": ", describe(place),
                " cannot be replaced, because it is the root; replace a module below it");
  if (dynamic_cast<const ReplaceableModule*>(place.module) != nullptr ||
      dynamic_cast<const SequentialImpl*>(place.parent) != nullptr ||
      dynamic_cast<const ModuleListImpl*>(place.parent) != nullptr ||
      dynamic_cast<const ModuleDictImpl*>(place.parent) != nullptr) {
    return;
  }
  TESSERA_CHECK(
      false, function, ": ", describe(place),
      " cannot be replaced, because its parent calls it by a member; declare the member as "
      "tessera::nn::Replaceable<",
      holder_name(*place.module),
      "> (from tessera/nn/replaceable.h), or put it into a torch::nn::Sequential");
}

void replace_module(const ModulePlace& place, const AnyModule& module) {
  // The registry may own the old module.
  const auto old = place.module->shared_from_this();
  if (auto* sequential = dynamic_cast<SequentialImpl*>(place.parent)) {
    replace_element(*sequential, old.get(), module);
  } else if (auto* list = dynamic_cast<ModuleListImpl*>(place.parent)) {
    std::replace(list->begin(), list->end(), old, module.ptr());
  } else if (auto* dict = dynamic_cast<ModuleDictImpl*>(place.parent)) {
    for (auto& item : *dict) {
      if (item.value() == old) item.value() = module.ptr();
    }
  } else {
    auto* slot = dynamic_cast<ReplaceableModule*>(place.module);
    TESSERA_INTERNAL_CHECK(slot != nullptr, describe(place), " cannot be replaced");
    slot->replace_with(module);
  }
  place.parent->replace_module(place.path.substr(place.path.rfind('.') + 1), module.ptr());
}

}  // namespace tessera::nn::detail
