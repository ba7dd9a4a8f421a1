#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/layout/layout.h"

namespace tessera::detail {

/// A mesh dim as seen from row-major positions: `size` steps of `stride`.
struct Axis {
  std::int64_t stride;
  std::int64_t size;
};

/// Several mesh dims, counted through like the digits of a number, the last one fastest.
class Axes {
 public:
  void add(const MeshShape& mesh, std::int64_t dim);

  /// How many combinations there are; 1 for no axes.
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] bool empty() const { return axes_.empty(); }
  /// Which combination a mesh position has.
  [[nodiscard]] std::int64_t index_of(std::int64_t position) const;
  /// What combination `index` adds to a mesh position.
  [[nodiscard]] std::int64_t offset_of(std::int64_t index) const;
  /// The position with all other mesh dims set to zero.
  [[nodiscard]] std::int64_t project(std::int64_t position) const;

 private:
  std::vector<Axis> axes_;
  std::int64_t count_ = 1;
};

/// Which part each mesh dim plays in getting from one layout to another.
///
/// A rank's data is found by three numbers: which shard it is (its coordinates along sharded mesh
/// dims), which replica, and, for Partial, which contribution. Mesh dims along which neither layout
/// changes anything ("spectators") keep their coordinate: no traffic crosses them.
struct Roles {
  Roles(const Layout& from_layout, const Layout& to_layout);

  Layout from;
  Layout to;
  bool same_mesh;

  Axes source_shards;
  /// Replicated in `from`, not a spectator: any of these copies can serve.
  Axes source_replicas;
  /// Partial in `from`, reduced on the way.
  Axes contributions;
  /// Carried over, on the same mesh only: replicated in both, or Partial in both.
  Axes spectators;
  Axes destination_shards;
  /// Replicated in `to`, not a spectator: each gets its copy.
  Axes destination_replicas;
  /// Newly Partial in `to`: the data goes to coordinate 0, the identity elsewhere.
  Axes roots;

  std::optional<ReduceOp> reduce;
  std::optional<ReduceOp> fill;
  /// What a sum must be divided by for the contributions that are averaged.
  std::int64_t divisor = 1;

  /// The mesh dims along which ranks talk; empty when the meshes differ.
  std::vector<std::int64_t> talking_dims;
  /// True when every rank already holds all that it needs.
  bool local;
};

/// Throws `InvalidArgument` when `from` cannot become `to`.
void check_pair(const Layout& from, const Layout& to);

}  // namespace tessera::detail
