#pragma once

#include "tessera/nn/hooks.h"
#include "tessera/nn/module_paths.h"

namespace tessera::nn::detail {

/// Where the hooks of a module go: both the module itself, or the first and the last element of a
/// Sequential.
struct HookPoints {
  Hookable* before = nullptr;
  Hookable* after = nullptr;
};

/// Throws `InvalidArgument` that names `function` and says what to change when a module cannot have
/// hooks, with `advice` for callers who know of another way. Changes nothing.
void check_hookable(const char* function, const ModulePlace& place, const char* advice = "");

/// Returns where the hooks of a module go, which `check_hookable` accepts. An element of a Sequential
/// is made to have hooks.
[[nodiscard]] HookPoints hook_points(const ModulePlace& place);

}  // namespace tessera::nn::detail
