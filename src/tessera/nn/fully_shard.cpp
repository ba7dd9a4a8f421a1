#include "tessera/nn/fully_shard.h"

#include <algorithm>
#include <optional>

#include <torch/nn/module.h>

#include "tessera/base/check.h"
#include "tessera/nn/gradient_sync.h"
#include "tessera/nn/mesh_dim.h"
#include "tessera/nn/module_tensors.h"
#include "tessera/nn/replicate_plain.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/in_place.h"

namespace tessera::nn {
namespace {

constexpr const char* kFullyShard = "fully_shard";
// Gathered mesh dims are the bits of a word.
constexpr std::int64_t kMostMeshDims = 64;

std::size_t mesh_dim_of(const DeviceMesh& mesh, const std::string& name) {
  TESSERA_CHECK(mesh.ndim() <= kMostMeshDims, kFullyShard, ": a mesh of ", mesh.ndim(),
                " dims given; at most ", kMostMeshDims, " are allowed");
  if (name.empty()) {
    TESSERA_CHECK(mesh.ndim() == 1, kFullyShard, ": no mesh_dim given for ", mesh,
                  "; say over which of its dims parameters are cut: {.mesh_dim = \"dp\"}");
    return 0;
  }
  return static_cast<std::size_t>(detail::mesh_dim_named(kFullyShard, mesh, name));
}

/// The tensor dim to cut: the first one, or the longest that no other mesh dim cuts; the first one
/// again when all are cut.
std::int64_t dim_to_cut(const Layout& layout) {
  std::optional<std::int64_t> longest;
  for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
    if (!layout.splits(dim).empty()) continue;
    if (dim == 0) return 0;
    const auto length = layout.shape()[static_cast<std::size_t>(dim)];
    if (!longest || length > layout.shape()[static_cast<std::size_t>(*longest)]) longest = dim;
  }
  return longest.value_or(0);
}

/// The layout of a parameter that is cut over a mesh dim too. Others cut a shared tensor dim first:
/// then a rank's share is a part of what it needs, and gathering stays along the mesh dim.
Layout sharded_layout(const Layout& layout, std::size_t mesh_dim) {
  Placements placements = layout.placements();
  placements[mesh_dim] = Shard(dim_to_cut(layout));
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    if (i != mesh_dim) order.push_back(static_cast<std::int64_t>(i));
  }
  order.push_back(static_cast<std::int64_t>(mesh_dim));
  return Layout(layout.mesh(), std::move(placements), layout.shape(), order);
}

void check_whole(const torch::nn::Module& module, std::size_t mesh_dim) {
  for (const auto& [name, parameter] : module.named_parameters().pairs()) {
    const auto* meta = tessera::detail::dtensor_meta(parameter);
    TESSERA_CHECK(meta == nullptr || is_replicate(meta->layout().placements()[mesh_dim]),
                  kFullyShard, ": parameter '", name, "' is placed ", meta->layout(),
                  ", so it is cut along that mesh dim already; fully_shard takes modules whose "
                  "parameters are plain, or replicated there");
  }
}

/// Cuts a parameter in place, its gradient too, and marks it: see Note [Gathered on use].
void shard(const at::Tensor& parameter, std::size_t mesh_dim) {
  const DeviceMesh mesh = mesh_of(parameter);
  const Layout layout = sharded_layout(layout_of(parameter), mesh_dim);
  const at::Tensor value = tessera::detail::move(parameter.detach(), mesh, layout);
  tessera::detail::dtensor_meta(value)->set_gathered_dims(std::uint64_t{1} << mesh_dim);
  if (const at::Tensor& gradient = parameter.grad(); gradient.defined()) {
    value.mutable_grad() = tessera::detail::move(gradient.detach(), mesh, layout);
  }
  become(parameter, value);
}

/// What the first rank, which holds the most, has of a parameter before it is cut: as much as of its
/// gradient until that is sent.
std::int64_t whole_bytes(const at::Tensor& parameter) {
  return layout_of(parameter).local_numel(0) * static_cast<std::int64_t>(parameter.element_size());
}

}  // namespace

void fully_shard(torch::nn::Module& module, const DeviceMesh& mesh,
                 const FullyShardOptions& options) {
  const std::size_t mesh_dim = mesh_dim_of(mesh, options.mesh_dim);
  check_whole(module, mesh_dim);
  detail::check_one_mesh(kFullyShard, module, mesh);
  detail::replicate_plain(module, mesh);
  const auto parameters = detail::parameters_of(module);
  std::int64_t largest = 1;
  for (const auto& parameter : parameters) {
    largest = std::max(largest, whole_bytes(parameter));
    if (parameter.dim() == 0 || parameter.numel() < options.min_elements) continue;
    shard(parameter, mesh_dim);
  }
  sync_gradients(parameters, {.bucket_bytes = options.bucket_bytes.value_or(largest)});
}

}  // namespace tessera::nn
