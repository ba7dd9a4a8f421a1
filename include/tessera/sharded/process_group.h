#pragma once

#include <optional>

#include "tessera/comm/group.h"

namespace tessera::sharded {

/// While alive, the group that functions of `tessera::sharded` use on the calling rank when none is
/// given to them.
///
///     {
///       const LoadWithProcessGroup guard = load_with_process_group(mesh.group("tp"));
///       auto weight = load_sharded_tensor(bytes);  // Its shards belong to the ranks of tp.
///     }
class LoadWithProcessGroup {
 public:
  /// Throws `InvalidArgument` when one is alive already on this rank.
  explicit LoadWithProcessGroup(const Group& group);
  ~LoadWithProcessGroup();
  LoadWithProcessGroup(const LoadWithProcessGroup&) = delete;
  LoadWithProcessGroup& operator=(const LoadWithProcessGroup&) = delete;
};

/// Returns a guard, which must be kept.
[[nodiscard]] LoadWithProcessGroup load_with_process_group(const Group& group);

/// The group of the guard that is alive on the calling rank; that of the world without one. Throws
/// `InvalidArgument` outside of `launch` and `run_ranks`.
[[nodiscard]] Group current_process_group();

}  // namespace tessera::sharded
