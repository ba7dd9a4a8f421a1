#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A rank's position in a mesh, one index per mesh dimension.
using Coordinate = std::vector<std::int64_t>;

/// An n-dimensional arrangement of ranks with named dimensions. Pure metadata: nothing is
/// communicated, and any mesh can be described from anywhere.
///
/// Positions are numbered row-major; `ranks[position]` says which global rank sits there, which is
/// 0, 1, 2, ... unless given. A value type: copies are cheap and share one immutable record.
///
///     MeshShape mesh({2, 4}, {"dp", "tp"});      // ranks 0..7
///     mesh.slice({"tp"}, 5)                      // [tp=4] with ranks 4, 5, 6, 7
class MeshShape {
 public:
  /// Throws `InvalidArgument` unless every size is >= 1, there is one unique name (letters, digits,
  /// underscores) per dimension or none at all, and `ranks`, when given, names size-product many different ranks
  /// >= 0. No dimensions at all is a mesh of one rank.
  explicit MeshShape(std::vector<std::int64_t> sizes, std::vector<std::string> names = {},
                     std::vector<std::int64_t> ranks = {});

  /// Reads `dp=2,tp=4` or `2,4`, with or without brackets, with ranks `@4..11` or `@{0,2,5}` behind
  /// it if they are not 0, 1, 2, ...: what `to_string` prints for up to 16 listed ranks.
  [[nodiscard]] static MeshShape parse(std::string_view text);

  [[nodiscard]] std::int64_t ndim() const;
  [[nodiscard]] std::int64_t size(std::int64_t dim) const;
  [[nodiscard]] const std::vector<std::int64_t>& sizes() const;
  /// Empty when the dimensions have no names.
  [[nodiscard]] const std::vector<std::string>& names() const;
  /// How far apart neighbours along `dim` are in row-major position.
  [[nodiscard]] std::int64_t stride(std::int64_t dim) const;
  [[nodiscard]] std::int64_t num_ranks() const;

  /// Returns the dimension of that name. Throws `InvalidArgument` that lists the names otherwise.
  [[nodiscard]] std::int64_t dim_named(std::string_view name) const;
  /// Returns `tp` for a named and `1` for an unnamed dimension, for use in messages.
  [[nodiscard]] std::string dim_label(std::int64_t dim) const;

  /// Returns the global rank at a row-major position or a coordinate.
  [[nodiscard]] std::int64_t rank_at(std::int64_t position) const;
  [[nodiscard]] std::int64_t rank_at(const Coordinate& coordinate) const;
  /// All global ranks in row-major order.
  [[nodiscard]] std::vector<std::int64_t> ranks() const;
  /// The greatest global rank in the mesh.
  [[nodiscard]] std::int64_t max_rank() const;

  /// Where a global rank sits; nothing when it is outside this mesh.
  [[nodiscard]] std::optional<std::int64_t> position_of(std::int64_t rank) const;
  [[nodiscard]] std::optional<Coordinate> coordinate_of(std::int64_t rank) const;
  [[nodiscard]] bool contains(std::int64_t rank) const { return position_of(rank).has_value(); }

  [[nodiscard]] Coordinate coordinate_at(std::int64_t position) const;
  [[nodiscard]] std::int64_t position_at(const Coordinate& coordinate) const;

  /// Returns the sub-mesh with the named dimensions, in the order given, that passes through
  /// `rank`. Throws `InvalidArgument` for unknown or repeated names, unnamed meshes, and a rank
  /// outside the mesh.
  [[nodiscard]] MeshShape slice(const std::vector<std::string>& dim_names, std::int64_t rank) const;
  /// The same by dimension index; also works on unnamed meshes.
  [[nodiscard]] MeshShape slice_dims(std::span<const std::int64_t> dims, std::int64_t rank) const;

  /// Returns the same ranks as one dimension called `name` (unnamed when empty).
  [[nodiscard]] MeshShape flatten(std::string name = {}) const;

  /// Returns this mesh with dimension `dim` replaced by dimensions of `sizes`, whose product must
  /// be the dimension's size. `names` must be given exactly when the mesh has names.
  [[nodiscard]] MeshShape unflatten(std::int64_t dim, const std::vector<std::int64_t>& sizes,
                                    const std::vector<std::string>& names = {}) const;

  [[nodiscard]] std::size_t hash() const;
  /// Equal sizes, names and ranks.
  bool operator==(const MeshShape& other) const;
  /// True when both put the same ranks at the same coordinates, whatever the names.
  [[nodiscard]] bool same_ranks(const MeshShape& other) const;

  /// `[dp=2, tp=4]`; unnamed `[2, 4]`; with `@4..7` or `@{0,2,5}` behind it when the ranks are not
  /// 0, 1, 2, ...
  [[nodiscard]] std::string to_string() const;

 private:
  struct Record;
  std::shared_ptr<const Record> record_;
};

std::ostream& operator<<(std::ostream& os, const MeshShape& mesh);

}  // namespace tessera

template <>
struct std::hash<tessera::MeshShape> {
  std::size_t operator()(const tessera::MeshShape& mesh) const noexcept { return mesh.hash(); }
};
