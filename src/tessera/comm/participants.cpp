#include "tessera/comm/participants.h"

#include <algorithm>
#include <string>

#include "tessera/base/concat.h"
#include "tessera/comm/world_state.h"
#include "tessera/plan/roles.h"

namespace tessera::detail {

Group group_along(WorldState& world, const MeshShape& mesh, const std::vector<std::int64_t>& dims) {
  std::vector<std::string> labels;
  for (const auto dim : dims) labels.push_back(mesh.dim_label(dim));
  return World(world.shared_from_this())
      .group(mesh.slice_dims(dims, world.rank()).ranks(),
             mesh.names().empty() ? "" : joined(labels, ","));
}

Group group_of_both(WorldState& world, const MeshShape& first, const MeshShape& second) {
  auto ranks = first.ranks();
  const auto more = second.ranks();
  ranks.insert(ranks.end(), more.begin(), more.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
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

}  // namespace tessera::detail
