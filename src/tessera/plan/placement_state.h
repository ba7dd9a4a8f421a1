#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "tessera/layout/layout.h"

namespace tessera::detail {

constexpr std::size_t kMaxMeshDims = 8;
constexpr std::size_t kMaxTensorDims = 16;

/// Local sizes of one rank, one per tensor dim.
using Sizes = std::array<std::int64_t, kMaxTensorDims>;

/// A node of the search: how each mesh dim holds the tensor, in 16 bytes.
struct PlacementState {
  // Codes below zero are not sharded; otherwise the tensor dim.
  static constexpr std::int8_t kReplicate = -1;
  /// Contributions that must be reduced on the way.
  static constexpr std::int8_t kPending = -2;
  /// Newly Partial, as the destination wants it; stays so.
  static constexpr std::int8_t kFilled = -3;
  /// The same in source and destination and never touched: Partial in both, or a strided shard in
  /// front of the order of its tensor dim.
  static constexpr std::int8_t kKept = -4;
  static constexpr std::int8_t kUnused = -5;

  std::array<std::int8_t, kMaxMeshDims> code{};
  /// The place of a sharding mesh dim in the order of its tensor dim; 0 for the others.
  std::array<std::int8_t, kMaxMeshDims> place{};

  bool operator==(const PlacementState&) const = default;
};

struct PlacementStateHash {
  std::size_t operator()(const PlacementState& state) const;
};

/// The fixed surroundings of a search: mesh, shape, and what never changes.
class StateSpace {
 public:
  /// Nothing when the layouts are outside of what the search handles.
  [[nodiscard]] static std::optional<StateSpace> make(const Layout& from, const Layout& to);

  [[nodiscard]] const PlacementState& source() const { return source_; }
  [[nodiscard]] const PlacementState& target() const { return target_; }
  [[nodiscard]] std::size_t mesh_ndim() const { return mesh_ndim_; }
  [[nodiscard]] std::int64_t mesh_size(std::size_t mesh_dim) const { return sizes_[mesh_dim]; }
  [[nodiscard]] std::size_t tensor_ndim() const { return from_.shape().size(); }
  /// Whether some mesh dim shards this tensor dim before or after.
  [[nodiscard]] bool is_useful(std::size_t tensor_dim) const { return useful_[tensor_dim]; }
  /// The op of the Partial that mesh dim `mesh_dim` becomes; for `kFilled` targets.
  [[nodiscard]] ReduceOp filled_op(std::size_t mesh_dim) const;

  /// How many mesh dims shard `tensor_dim`, kept ones included.
  [[nodiscard]] std::int8_t depth(const PlacementState& state, std::size_t tensor_dim) const;
  /// The mesh dim that cuts `tensor_dim` at `place`, if it may be undone: a plain shard.
  [[nodiscard]] std::optional<std::size_t> cut_at(const PlacementState& state,
                                                  std::size_t tensor_dim, std::int8_t place) const;

  /// Local sizes of the last rank of the mesh, or the most that any rank has (`last` = false), which
  /// is what the first one has unless there are strided shards.
  [[nodiscard]] Sizes local_sizes(const PlacementState& state, bool last) const;
  [[nodiscard]] std::int64_t numel(const Sizes& sizes) const;

  /// Spells a state out as a layout.
  [[nodiscard]] Layout layout(const PlacementState& state) const;

 private:
  StateSpace(const Layout& from, const Layout& to);
  bool encode();

  Layout from_;
  Layout to_;
  std::size_t mesh_ndim_;
  std::array<std::int64_t, kMaxMeshDims> sizes_{};
  /// For kept strided shards: the tensor dim they cut; -1 otherwise.
  std::array<std::int8_t, kMaxMeshDims> kept_dim_{};
  std::array<bool, kMaxTensorDims> useful_{};
  PlacementState source_;
  PlacementState target_;
};

}  // namespace tessera::detail
