#include "tessera/nn/parallelize_module.h"

#include <map>

#include "tessera/base/check.h"
#include "tessera/nn/hook_points.h"
#include "tessera/nn/mesh_dim.h"
#include "tessera/nn/module_paths.h"
#include "tessera/nn/near_names.h"
#include "tessera/nn/path_pattern.h"
#include "tessera/nn/replicate_plain.h"
#include "tessera/nn/style_actions.h"
#include "tessera/tensor/in_place.h"

namespace tessera::nn {
namespace {

using detail::ModulePlace;
using detail::PlacedTensor;
using detail::StyleActions;

constexpr const char* kName = "parallelize_module";

std::int64_t mesh_dim_of(const DeviceMesh& mesh, const ParallelizeOptions& options) {
  if (mesh.ndim() > 1) {
    TESSERA_CHECK(options.activations == Activations::distributed, kName,
                  ": plain activations given for ", mesh,
                  ", but only along one mesh dim is known how they are placed; pass a mesh of one ",
                  "dim such as mesh[\"tp\"], or {.activations = Activations::distributed}");
    TESSERA_CHECK(options.mesh_dim.has_value(), kName, ": ", mesh, " has ", mesh.ndim(),
                  " dims; say along which one the styles work, {.mesh_dim = \"tp\"}");
  }
  return options.mesh_dim ? detail::mesh_dim_named(kName, mesh, *options.mesh_dim) : 0;
}

std::vector<ModulePlace> matching(const std::string& pattern,
                                  const std::vector<ModulePlace>& places) {
  detail::check_pattern(kName, pattern);
  std::vector<ModulePlace> found;
  std::vector<std::string> paths;
  for (const auto& place : places) {
    if (detail::matches(pattern, place.path)) found.push_back(place);
    if (!place.path.empty()) paths.push_back(place.path);
  }
  TESSERA_CHECK(!found.empty(), kName, ": no module of ", detail::holder_name(*places[0].module),
                " matches '", pattern, "'; ", detail::near_names_text(pattern, paths));
  return found;
}

/// Refuses tensors that two styles place differently, and such as are placed already.
void check_tensors(const std::vector<StyleActions>& all) {
  std::map<const c10::TensorImpl*, const PlacedTensor*> seen;
  for (const auto& actions : all) {
    for (const auto& placed : actions.tensors) {
      TESSERA_CHECK(!is_dtensor(placed.tensor), kName, ": '", placed.name,
                    "' is a DTensor already, placed ", layout_of(placed.tensor),
                    "; a module can only be parallelized once");
      const auto [known, is_new] = seen.emplace(placed.tensor.unsafeGetTensorImpl(), &placed);
      TESSERA_CHECK(is_new || known->second->placement == placed.placement, kName, ": '",
                    known->second->name, "' would be placed ", known->second->placement, " and '",
                    placed.name, "', the same tensor, ", placed.placement,
                    "; give both modules styles that agree");
    }
  }
}

void check_layouts(const std::vector<StyleActions>& all, const DeviceMesh& mesh) {
  for (const auto& actions : all) {
    for (const auto& placed : actions.tensors) {
      const auto* shard = std::get_if<Shard>(&placed.placement);
      TESSERA_INTERNAL_CHECK(shard == nullptr || shard->dim < placed.tensor.dim(), placed.name,
                             " has too few dims");
      const std::string type =
          c10::DeviceTypeName(placed.tensor.device().type(), /*lower_case=*/true);
      TESSERA_CHECK(type == mesh.device_type(), kName, ": '", placed.name, "' is on ", type,
                    ", the mesh is ", mesh, "; move the module first");
    }
  }
}

void apply(const StyleActions& actions, const DeviceMesh& mesh, std::int64_t mesh_dim,
           const DistributeOptions& options) {
  for (const auto& placed : actions.tensors) {
    if (is_dtensor(placed.tensor)) continue;
    Placements placements(static_cast<std::size_t>(mesh.ndim()), Replicate());
    placements[static_cast<std::size_t>(mesh_dim)] = placed.placement;
    distribute_in_place(placed.tensor, mesh, placements, options);
  }
  if (actions.before) {
    detail::hook_points(actions.place)
        .before->add_forward_pre_hook(
            [boundary = *actions.before](torch::nn::Module& /*module*/, TensorLeaves inputs) {
              boundary.cross(inputs);
            });
  }
  if (actions.after) {
    detail::hook_points(actions.place)
        .after->add_forward_hook(
            [boundary = *actions.after](torch::nn::Module& /*module*/, TensorLeaves /*inputs*/,
                                        TensorLeaves outputs) { boundary.cross(outputs); });
  }
}

}  // namespace

void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
                        const ParallelizeOptions& options) {
  const std::int64_t mesh_dim = mesh_dim_of(mesh, options);
  const auto places = detail::modules_below(module);
  std::vector<StyleActions> all;
  for (const auto& [pattern, style] : plan) {
    for (const auto& place : matching(pattern, places)) {
      all.push_back(detail::actions_of(style, place, mesh, mesh_dim, options.activations));
    }
  }
  check_tensors(all);
  check_layouts(all, mesh);
  const DistributeOptions source{.src_data_rank = options.src_data_rank};
  for (const auto& actions : all) apply(actions, mesh, mesh_dim, source);
  if (options.activations == Activations::distributed) {
    detail::replicate_plain(module, mesh, source);
  }
}

void parallelize_module(torch::nn::Module& module, const DeviceMesh& mesh,
                        const ParallelStyle& style, const ParallelizeOptions& options) {
  parallelize_module(module, mesh, ParallelPlan{{"", style}}, options);
}

}  // namespace tessera::nn
