#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "tessera/comm/world.h"

namespace c10d {
class ProcessGroup;
}

namespace tessera {

/// A process group of some ranks of a world.
struct AdoptedGroup {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  /// The members' ranks in the world, in the group's order.
  std::vector<std::int64_t> ranks;
};

/// Makes a process group of some ranks of the world, in the order given. Called by these ranks only,
/// at the same place in the order of what they do.
using GroupMaker =
    std::function<c10::intrusive_ptr<c10d::ProcessGroup>(const std::vector<std::int64_t>& ranks)>;

/// Returns the world of the members of a process group that the program has already, whatever its
/// backend: NCCL where libtorch has it, gloo, or one of the program's own.
///
///     World world = adopt(process_group);
///     DeviceMesh mesh("cuda", MeshShape({4, 2}, {"dp", "tp"}), world);
///
/// `DeviceMesh::from_group(process_group, "cuda", "dp")` is short for the mesh of all its members.
///
/// The world's rank and size are those of `all`. It lives as long as the returned handle, and so do
/// its groups; the process groups stay the program's own. Of other groups it has those in `others`,
/// and what `make_group` makes when they are first needed; without it, an operation that needs ranks
/// that none of them has says which to pass.
///
/// All members must call it, with the same groups. It communicates: a few hundred bytes per rank.
///
/// Throws `InvalidArgument` for a process group that is null or has no backend, and for ranks that
/// do not fit the process groups; `CommError` when that first exchange fails.
[[nodiscard]] World adopt(const c10::intrusive_ptr<c10d::ProcessGroup>& all,
                          const std::vector<AdoptedGroup>& others = {},
                          const WorldOptions& options = {}, GroupMaker make_group = {});

}  // namespace tessera
