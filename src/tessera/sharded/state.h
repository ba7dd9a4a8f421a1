#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/layout/box_map.h"
#include "tessera/sharded/agreement.h"
#include "tessera/sharded/process_group.h"
#include "tessera/sharded/sharded_tensor.h"

namespace tessera::sharded {

/// What a `ShardedTensor` refers to; never changed.
struct ShardedTensor::State {
  Group group;
  ShardingSpec spec;
  ShardedTensorMetadata metadata;
  BoxMap boxes;
  /// This rank's, in the order of its pieces in `boxes`.
  std::vector<LocalShard> shards;
};

namespace detail {

[[nodiscard]] inline Group group_or_current(const std::optional<Group>& group) {
  return group ? *group : current_process_group();
}

/// Throws `InvalidArgument` that names `function` unless `member` is a place in the group.
void check_member(const std::string& function, const char* what, std::int64_t member,
                  const Group& group);

/// Returns the shards of a tensor of `shape`. Throws `InvalidArgument` that names `function` unless the
/// spec fits the shape, all its ranks are in the group and all its devices are of `device_type`.
[[nodiscard]] std::vector<ShardMetadata> checked_shards(const std::string& function,
                                                        const ShardingSpec& spec,
                                                        const Shape& shape, const Group& group,
                                                        const std::string& device_type);

/// Returns `cpu`, `cuda`, ....
[[nodiscard]] std::string device_type_of(const at::Tensor& tensor);

/// The options of new shards on this rank.
[[nodiscard]] at::TensorOptions shard_options(const TensorProperties& properties,
                                              const std::vector<ShardMetadata>& shards);

/// Puts a tensor together; `pieces` are this rank's, in the order of the spec. They are taken as they
/// are, or made leaves that require gradients if the properties say so and they are `new_leaves`.
[[nodiscard]] ShardedTensor make_sharded(const Group& group, const ShardingSpec& spec,
                                         ShardedTensorMetadata metadata,
                                         std::vector<at::Tensor> pieces, bool new_leaves);

/// Where values come from that are moved.
struct MoveSource {
  /// As `CommDebugMode` shows it.
  std::string cause;
  const BoxMap& boxes;
  const Group& group;
  at::TensorOptions options;
};

/// Returns a new DTensor without history, on ranks of the group, with the values of `pieces`, this
/// rank's of `source.boxes`. Called by all members, with arguments that were checked.
[[nodiscard]] at::Tensor move_to_dtensor(const MoveSource& source,
                                         const std::vector<at::Tensor>& pieces,
                                         const DeviceMesh& mesh, const Layout& layout);

/// The same with the values of member `src_rank`'s `tensor`.
[[nodiscard]] at::Tensor place_from_member(const std::string& cause, const at::Tensor& tensor,
                                           std::int64_t src_rank, const Group& group,
                                           const DeviceMesh& mesh, const Layout& layout);

/// The tensors of the shards.
[[nodiscard]] std::vector<at::Tensor> pieces_of(const std::vector<LocalShard>& shards);

}  // namespace detail
}  // namespace tessera::sharded
