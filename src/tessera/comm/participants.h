#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/comm/group.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/layout/layout.h"

namespace tessera::detail {

class WorldState;

/// Returns the group of the ranks along some dims of a mesh through the calling one, named after
/// the dims where they have names.
[[nodiscard]] Group group_along(WorldState& world, const MeshShape& mesh,
                                const std::vector<std::int64_t>& dims);

/// Returns the group of all ranks of two meshes, in ascending order.
[[nodiscard]] Group group_of_both(WorldState& world, const MeshShape& first,
                                  const MeshShape& second);

/// Returns the ranks that take part in a redistribution together with the calling one, who must
/// agree on it before its first byte moves; nothing when every rank keeps to itself, and outside of
/// both meshes.
///
/// It follows from the meshes and placements alone. So ranks that differ in the shape, the dtype or
/// the options, and therefore in their plans, still meet in the same group and find out.
///
/// Throws `InvalidArgument` when `from` cannot become `to`.
[[nodiscard]] std::optional<Group> participants_of(WorldState& world, const Layout& from,
                                                   const Layout& to);

/// The same for several tensors at once, ascending: the ranks along all mesh dims in which any of them
/// may move when all are on one mesh, otherwise those of all meshes.
[[nodiscard]] std::optional<Group> participants_of_all(WorldState& world,
                                                       std::span<const LayoutChange> changes);

}  // namespace tessera::detail
