#include "tessera/comm/participants.h"

#include <algorithm>
#include <string>

#include "tessera/base/concat.h"
#include "tessera/comm/world_state.h"
#include "tessera/plan/roles.h"

namespace tessera::detail {
namespace {

/// Adds to a list of numbers in ascending order.
void unite(std::vector<std::int64_t>& all, const std::vector<std::int64_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

}  // namespace

Group group_along(WorldState& world, const MeshShape& mesh, const std::vector<std::int64_t>& dims) {
  std::vector<std::string> labels;
  for (const auto dim : dims) labels.push_back(mesh.dim_label(dim));
  return World(world.shared_from_this())
      .group(mesh.slice_dims(dims, world.rank()).ranks(),
             mesh.names().empty() ? "" : joined(labels, ","));
}

Group group_of_both(WorldState& world, const MeshShape& first, const MeshShape& second) {
  auto ranks = first.ranks();
  unite(ranks, second.ranks());
  return World(world.shared_from_this()).group(ranks);
}

std::optional<Group> participants_of(WorldState& world, const Layout& from, const Layout& to) {
  check_pair(from, to);
  if (!from.mesh().contains(world.rank()) && !to.mesh().contains(world.rank())) return {};
  const Roles roles(from, to);
  if (!roles.same_mesh) return group_of_both(world, from.mesh(), to.mesh());
  if (roles.local) return {};
  return group_along(world, from.mesh(), roles.talking_dims);
}

std::optional<Group> participants_of_all(WorldState& world, std::span<const LayoutChange> changes) {
  const MeshShape* mesh = nullptr;
  bool is_one_mesh = true;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> ranks;
  for (const auto& [from, to] : changes) {
    check_pair(from, to);
    const Roles roles(from, to);
    if (roles.same_mesh && roles.local) continue;
    if (mesh == nullptr) mesh = &from.mesh();
    is_one_mesh = is_one_mesh && roles.same_mesh && from.mesh().same_ranks(*mesh);
    unite(dims, roles.talking_dims);
    unite(ranks, from.mesh().ranks());
    unite(ranks, to.mesh().ranks());
  }
  if (!std::binary_search(ranks.begin(), ranks.end(), world.rank())) return {};
  if (is_one_mesh) {
    ranks = mesh->slice_dims(dims, world.rank()).ranks();
    std::sort(ranks.begin(), ranks.end());
  }
  return World(world.shared_from_this()).group(ranks);
}

}  // namespace tessera::detail
