#include "tessera/nn/distribute_module.h"

#include <memory>
#include <mutex>
#include <set>

#include "tessera/base/check.h"
#include "tessera/nn/hook_points.h"
#include "tessera/nn/module_paths.h"
#include "tessera/nn/replicate_plain.h"

namespace tessera::nn {
namespace {

using WeakModule = std::weak_ptr<const torch::nn::Module>;

/// The modules that were distributed and still exist, of all ranks of this process.
class DistributedModules {
 public:
  [[nodiscard]] bool contains(const torch::nn::Module& module) {
    const std::lock_guard lock(mutex_);
    return modules_.contains(module.weak_from_this());
  }

  void add(const torch::nn::Module& module) {
    const std::lock_guard lock(mutex_);
    std::erase_if(modules_, [](const WeakModule& known) { return known.expired(); });
    modules_.insert(module.weak_from_this());
  }

 private:
  std::mutex mutex_;
  std::set<WeakModule, std::owner_less<WeakModule>> modules_;
};

DistributedModules& distributed_modules() {
  static DistributedModules modules;
  return modules;
}

}  // namespace

void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh,
                       const PartitionFn& partition_fn, const InputFn& input_fn,
                       const OutputFn& output_fn, const DistributeOptions& options) {
  constexpr const char* kName = "distribute_module";
  const detail::ModulePlace root{"", &module, nullptr};
  TESSERA_CHECK(!module.weak_from_this().expired(), kName, ": ", detail::describe(root),
                " is a variable of its own; hold it by a module holder or a std::shared_ptr");
  TESSERA_CHECK(!distributed_modules().contains(module), kName, ": ", detail::describe(root),
                " was distributed before; it can only be called once on a module");
  if (input_fn || output_fn) detail::check_hookable(kName, root);
  if (partition_fn) {
    for (const auto& place : detail::modules_below(module)) {
      partition_fn(place.path, *place.module, mesh);
    }
  }
  detail::replicate_plain(module, mesh, options);
  if (input_fn) {
    detail::hook_points(root).before->add_forward_pre_hook(
        [input_fn, mesh](torch::nn::Module& called, TensorLeaves inputs) {
          input_fn(called, inputs, mesh);
        });
  }
  if (output_fn) {
    detail::hook_points(root).after->add_forward_hook(
        [output_fn, mesh](torch::nn::Module& called, TensorLeaves /*inputs*/,
                          TensorLeaves outputs) { output_fn(called, outputs, mesh); });
  }
  distributed_modules().add(module);
}

}  // namespace tessera::nn
