#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace tessera::nn::detail {

/// A module, and where it is.
struct ModulePlace {
  /// From the root, `layers.0.fc1`; empty for the root itself.
  std::string path;
  torch::nn::Module* module = nullptr;
  /// Null for the root.
  torch::nn::Module* parent = nullptr;
};

/// Returns all modules from the root on, parents before their children, in order of registration. A
/// module that is registered twice appears at both places.
[[nodiscard]] std::vector<ModulePlace> modules_below(torch::nn::Module& root);

/// Returns the module at a path. Throws `InvalidArgument` that names `function` and near paths when
/// there is none.
[[nodiscard]] ModulePlace module_at(const char* function, torch::nn::Module& root,
                                    const std::string& path);

/// Returns `torch::nn::Linear` for a `torch::nn::LinearImpl` and for one with hooks.
[[nodiscard]] std::string holder_name(const torch::nn::Module& module);

/// Returns `module 'layers.0.fc1' (torch::nn::Linear)`; `the module (Net)` for the root.
[[nodiscard]] std::string describe(const ModulePlace& place);

/// Returns `path.name`, or `name` alone at the root.
[[nodiscard]] std::string joined_path(const std::string& path, const std::string& name);

}  // namespace tessera::nn::detail
