#pragma once

#include <torch/nn/modules/container/any.h>

#include "tessera/nn/module_paths.h"

namespace tessera::nn::detail {

/// Throws `InvalidArgument` that names `function` and says what to change unless `replace_module` can
/// put another module in the place of this one: it must be a `Replaceable` member or an element of a
/// Sequential, ModuleList or ModuleDict.
void check_replaceable(const char* function, const ModulePlace& place);

/// Puts a module in the place of another, which `check_replaceable` accepts: in the parent's registry,
/// and where its parent calls it. Hooks of the place stay.
void replace_module(const ModulePlace& place, const torch::nn::AnyModule& module);

}  // namespace tessera::nn::detail
