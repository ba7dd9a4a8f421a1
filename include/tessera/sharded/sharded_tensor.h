#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/comm/group.h"
#include "tessera/layout/placement.h"
#include "tessera/sharded/metadata.h"
#include "tessera/sharded/sharding_spec.h"

namespace tessera::sharded {

/// \file
/// A tensor held as a list of shards, any boxes on any ranks of a group.
///
/// Placements name global ranks; `src_rank` and `dst` are places in the group, as the roots of
/// collectives are. Where no group is given it is `current_process_group()`. All members of the group
/// must call the functions that make, move or gather a tensor. What they must agree on, and what each
/// of them is given, is checked on all of them before anything moves: a mistake of one is an
/// `InvalidArgument` on all.

/// One shard of this rank.
struct LocalShard {
  at::Tensor tensor;
  ShardMetadata metadata;
};

/// A handle: copies are cheap and refer to the same shards. Made by the functions below.
class ShardedTensor {
 public:
  [[nodiscard]] const ShardingSpec& sharding_spec() const;
  /// The shards of all ranks, in the order of the spec.
  [[nodiscard]] const ShardedTensorMetadata& metadata() const;
  [[nodiscard]] const std::vector<std::int64_t>& sizes() const { return metadata().size; }
  [[nodiscard]] at::ScalarType scalar_type() const { return metadata().properties.dtype; }
  [[nodiscard]] const Group& group() const;

  /// This rank's shards, in the order of the spec; none on ranks that no placement names.
  [[nodiscard]] const std::vector<LocalShard>& local_shards() const;
  /// The only shard. Throws `InvalidArgument` unless this rank has exactly one.
  [[nodiscard]] at::Tensor local_tensor() const;

  /// Returns the whole tensor on member `dst`, and an undefined one elsewhere: `out`, if that is
  /// given, which may be strided, otherwise a new one. Without history.
  ///
  /// Counted as one `all_to_all_single`; `dst` receives what it does not hold, the others nothing.
  /// Throws `InvalidArgument` on all members when `dst` is no member or not the same everywhere, when
  /// `out` is given on another member than `dst`, or when it has another shape, dtype or kind of
  /// device, or is a DTensor.
  at::Tensor gather(std::int64_t dst = 0, const at::Tensor& out = {}) const;

  /// Returns the same tensor cut and placed otherwise, in the same group. New memory; this one stays
  /// as it is. Shards of the result are leaves.
  ///
  /// Every rank receives exactly what it needs and does not hold, whatever the two specs are; counted
  /// as one `all_to_all_single`. Throws `InvalidArgument` on all members for a spec that does not fit
  /// the tensor or the group, or is not the same everywhere, and for shards with history (not
  /// differentiable: go by `to_dtensor` and `redistribute`).
  [[nodiscard]] ShardedTensor reshard(const ShardingSpec& spec) const;

  /// The layout that gives every rank what the spec does, if there is one: chunks on different ranks,
  /// or boxes that form a grid (see `find_layout`).
  [[nodiscard]] std::optional<Layout> layout() const;
  /// Returns the DTensor of `layout()`, which shares memory with the shards: operations on it are
  /// operations on this tensor. Differentiable; nothing is communicated. Throws `InvalidArgument`
  /// when there is no such layout.
  [[nodiscard]] at::Tensor to_dtensor() const;
  /// Returns the tensor as a new DTensor placed so, by a move as in `reshard`, without history. Throws
  /// `InvalidArgument` on all members for `Partial`, for a mesh with ranks outside of the group, and
  /// as `reshard`.
  [[nodiscard]] at::Tensor to_dtensor(const DeviceMesh& mesh, const Placements& placements) const;

  struct State;
  explicit ShardedTensor(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

/// Prints the metadata, and which shards this rank holds.
std::ostream& operator<<(std::ostream& os, const ShardedTensor& tensor);

/// Returns member `src_rank`'s `tensor` as shards. The values of the others do not matter, but shape,
/// dtype and `requires_grad` must be the same everywhere. Shards are leaves that require gradients if
/// `tensor` does. Counted as one `all_to_all_single`.
///
/// Throws `InvalidArgument` on all members when a tensor is not contiguous, not strided, a DTensor or
/// has history; for a spec that does not fit the tensor, the group or the tensor's device; and when
/// src_rank, spec, shape or properties differ from rank to rank.
[[nodiscard]] ShardedTensor shard_tensor(const at::Tensor& tensor, const ShardingSpec& spec,
                                         std::int64_t src_rank = 0,
                                         const std::optional<Group>& group = std::nullopt);

/// Returns the tensor of `size` whose shards the members have already. Shares their memory; the spec
/// is inferred (`infer_spec`). The metadata is gathered; no values move.
///
/// Throws `InvalidArgument` on all members when a shard has not the shape, the rank or the device that
/// its metadata say; when sizes or properties do not match from different ranks; when shards overlap or
/// leave gaps; and when there are no shards at all.
[[nodiscard]] ShardedTensor init_from_local_shards(
    const std::vector<LocalShard>& shards, const std::vector<std::int64_t>& size,
    const std::optional<Group>& group = std::nullopt);

/// Returns the shards of a DTensor, which share its memory; differentiable, nothing is communicated.
/// Its mesh must be part of the group. Throws `InvalidArgument` for a plain tensor, and for one that is
/// replicated or Partial along a mesh dim of more than one rank: redistribute it first, or give a spec.
[[nodiscard]] ShardedTensor from_dtensor(const at::Tensor& tensor,
                                         const std::optional<Group>& group = std::nullopt);
/// Returns a DTensor as other shards, by a move as in `reshard`, without history; of replicated values
/// the rank's own copy is taken. Throws `InvalidArgument` on all members for a plain tensor or a
/// `Partial` one, and as `reshard`.
[[nodiscard]] ShardedTensor from_dtensor(const at::Tensor& tensor, const ShardingSpec& spec,
                                         const std::optional<Group>& group = std::nullopt);

/// This rank's shards with everything that describes them, as bytes; and back, in a group that has the
/// same ranks. The values move in memory only: every rank writes and reads its own. Throws
/// `InvalidArgument` on all members for other bytes, another rank's bytes, or another group.
[[nodiscard]] std::string to_bytes(const ShardedTensor& tensor);
[[nodiscard]] ShardedTensor load_sharded_tensor(std::string_view bytes,
                                                const std::optional<Group>& group = std::nullopt);

}  // namespace tessera::sharded
