#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/comm/group.h"
#include "tessera/sharded/sharding_spec.h"

namespace torch::nn {
class Module;
}

namespace tessera::sharded {

/// Makes a parameter or buffer of `module` a DTensor that is placed as `spec` says, in place: the
/// module's member, its registry, and optimizers that were made before see it. The values, and those of
/// the gradient if there is one, are member `src_rank`'s; every rank keeps its own shard only.
///
/// `name` is a name of the module's own, such as `weight`. Chunks must be on different ranks, and boxes
/// must form a grid (see `find_layout`): other specs are for `ShardedTensor`. The DTensor's mesh has the
/// ranks of the spec in its order, so tensors that are used together need specs with the same ranks in
/// the same order.
///
/// All members of the group must call it. Throws `InvalidArgument` on all of them, and changes nothing,
/// when the module has no attribute of that name; when that is not a tensor, not contiguous, a view,
/// has history, or is a DTensor already that is not replicated; when no DTensor is placed so; and as
/// `shard_tensor` does.
void shard_parameter(torch::nn::Module& module, const std::string& name, const ShardingSpec& spec,
                     std::int64_t src_rank = 0, const std::optional<Group>& group = std::nullopt);

}  // namespace tessera::sharded
