#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/layout/index_set.h"
#include "tessera/layout/mesh_shape.h"
#include "tessera/layout/placement.h"
#include "tessera/layout/split.h"

namespace tessera {

/// Sizes of a tensor, global or local.
using Shape = std::vector<std::int64_t>;

/// What one rank holds of a tensor: the product of one index set per tensor dimension. A tensor
/// without dimensions has one element, so its part has too.
struct Part {
  std::vector<IndexSet> dims;

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] Shape shape() const;
  bool operator==(const Part&) const = default;
};

/// Prints `[0, 4) x [0, 2)+[4, 6)`; `scalar` for no dimensions.
std::ostream& operator<<(std::ostream& os, const Part& part);

/// Who owns what: a global shape, placed on a mesh.
///
/// Several mesh dimensions may shard the same tensor dimension. They then split it one after the
/// other, from left to right, or in the order of `shard_order`. With placements [S(0),S(0)] on
/// [dp=2, tp=2] and 8 rows, dp splits into halves and tp those into quarters; with `shard_order`
/// {1, 0}, tp splits first, so the rank at (dp=0, tp=1) owns rows 4 and 5 instead of 2 and 3.
///
/// A value type: layouts with equal contents share one immutable record, so that copies,
/// comparison and hashing cost next to nothing. Thread-safe.
class Layout {
 public:
  /// Negative shard dims count from the end; `StridedShard(dim, 1)` becomes `Shard(dim)`.
  ///
  /// Throws `InvalidArgument` unless there is one placement per mesh dim, every shard dim is
  /// within the shape, every split factor is >= 1, sizes are >= 0 and their product fits 62 bits,
  /// all `Partial` ops agree (sum and avg may mix, being linear), and `shard_order`, when given,
  /// is a permutation of the mesh dims.
  Layout(MeshShape mesh, Placements placements, Shape shape,
         const std::vector<std::int64_t>& shard_order = {});

  [[nodiscard]] const MeshShape& mesh() const;
  [[nodiscard]] const Placements& placements() const;
  [[nodiscard]] const Shape& shape() const;
  /// Number of tensor dimensions.
  [[nodiscard]] std::int64_t ndim() const;
  /// Number of elements of the whole tensor.
  [[nodiscard]] std::int64_t numel() const;

  /// The cuts of one tensor dimension, outermost first. Mesh dims of one rank cut nothing and do
  /// not appear.
  [[nodiscard]] std::span<const Split> splits(std::int64_t dim) const;

  /// What the rank at a coordinate (or row-major position) of the mesh holds. These throw
  /// `InvalidArgument` for positions outside of the mesh and tensor dims that do not exist.
  [[nodiscard]] Part part_at(const Coordinate& coordinate) const;
  [[nodiscard]] Part part_at(std::int64_t position) const;
  /// What a global rank holds; nothing when it is outside the mesh.
  [[nodiscard]] std::optional<Part> part_of(std::int64_t rank) const;
  /// The indices of one tensor dimension that the rank at `position` of the mesh holds.
  [[nodiscard]] IndexSet owned(std::int64_t dim, std::int64_t position) const;
  /// How many that are; cheaper than counting `owned`.
  [[nodiscard]] std::int64_t local_size(std::int64_t dim, std::int64_t position) const;
  [[nodiscard]] Shape local_shape(std::int64_t position) const;
  [[nodiscard]] std::int64_t local_numel(std::int64_t position) const;

  /// True when some mesh dim of more than one rank is `Partial`.
  [[nodiscard]] bool has_partial() const;
  /// The op that reduces the contributions; `sum` when avg and sum mix. Nothing without Partial.
  [[nodiscard]] std::optional<ReduceOp> reduce_op() const;

  /// True when only names or the placements of one-rank mesh dims differ, so that both layouts give
  /// every rank the same elements in the same role. Layouts with different cuts that happen to give
  /// the same are not found.
  [[nodiscard]] bool equivalent(const Layout& other) const;

  [[nodiscard]] std::size_t hash() const;
  bool operator==(const Layout& other) const { return record_ == other.record_; }

  /// `[S(0),R]`, with the shard order behind it as in `to_string`.
  [[nodiscard]] std::string placements_text() const;
  /// `[8,8][S(0),R] on [dp=2, tp=2]`; a shard order that is not left to right is shown behind the
  /// placements as `{dim 0: tp,dp}`.
  [[nodiscard]] std::string to_string() const;

 private:
  struct Record;
  class Interner;
  std::shared_ptr<const Record> record_;
};

std::ostream& operator<<(std::ostream& os, const Layout& layout);

}  // namespace tessera

template <>
struct std::hash<tessera::Layout> {
  std::size_t operator()(const tessera::Layout& layout) const noexcept { return layout.hash(); }
};
