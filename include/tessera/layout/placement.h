#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/hash.h"

namespace tessera {

/// How the contributions of a `Partial` tensor combine into its value.
enum class ReduceOp : std::uint8_t { sum, avg, min, max, product, band, bor, bxor };

/// Returns the op's name: `"sum"`, `"avg"`, ..., `"bxor"`.
[[nodiscard]] const char* to_string(ReduceOp op);
std::ostream& operator<<(std::ostream& os, ReduceOp op);

/// Returns the op of that name. Throws `InvalidArgument` that lists the names otherwise.
[[nodiscard]] ReduceOp parse_reduce_op(std::string_view text);

/// Every rank along the mesh dimension holds the same whole data.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

/// Rank i along the mesh dimension holds chunk i (see `chunk_extent`) of tensor dimension `dim`.
///
/// A negative `dim` counts from the end once the tensor's shape is known (in a `Layout`).
struct Shard {
  std::int64_t dim = 0;

  Shard() = default;
  constexpr explicit Shard(std::int64_t tensor_dim) : dim(tensor_dim) {}
  bool operator==(const Shard&) const = default;
};

/// Tensor dimension `dim` is cut into `split_factor` pieces, each piece is chunked over the mesh
/// dimension, and rank i holds chunk i of every piece, in order.
///
/// This is what remains of `Shard` when a dimension [pieces, rest] sharded on `rest` is merged:
/// of 8 elements over 2 ranks with 2 pieces, rank 0 holds {0, 1, 4, 5}. With `split_factor` 1 it
/// is the same as `Shard(dim)`.
struct StridedShard {
  std::int64_t dim = 0;
  std::int64_t split_factor = 1;

  StridedShard() = default;
  constexpr StridedShard(std::int64_t tensor_dim, std::int64_t pieces)
      : dim(tensor_dim), split_factor(pieces) {}
  bool operator==(const StridedShard&) const = default;
};

/// Every rank along the mesh dimension holds a contribution of the whole shape; the tensor's value
/// is their reduction by `op`.
struct Partial {
  ReduceOp op = ReduceOp::sum;

  Partial() = default;
  constexpr explicit Partial(ReduceOp reduce_op) : op(reduce_op) {}
  bool operator==(const Partial&) const = default;
};

/// How one mesh dimension holds a tensor. A closed set: visitors have no catch-all, so that adding
/// a case stops every incomplete one from compiling.
using Placement = std::variant<Replicate, Shard, StridedShard, Partial>;

/// One placement per mesh dimension, in the mesh's order.
using Placements = std::vector<Placement>;

[[nodiscard]] inline bool is_replicate(const Placement& placement) {
  return std::holds_alternative<Replicate>(placement);
}
[[nodiscard]] inline bool is_partial(const Placement& placement) {
  return std::holds_alternative<Partial>(placement);
}
/// True for `Shard` and for `StridedShard`.
[[nodiscard]] inline bool is_sharded(const Placement& placement) {
  return std::holds_alternative<Shard>(placement) ||
         std::holds_alternative<StridedShard>(placement);
}

/// Prints `R`, `S(0)`, `SS(0,2)` (dim 0 in 2 pieces) or `P(sum)`.
std::ostream& operator<<(std::ostream& os, const Placement& placement);
[[nodiscard]] std::string to_string(const Placement& placement);

/// Prints `[S(0),R]`; `[]` for none.
[[nodiscard]] std::string to_string(const Placements& placements);

/// Reads what `operator<<` prints; also `S0`, `P` (a sum) and any blanks.
///
/// Throws `InvalidArgument` that shows the text and the forms that are allowed.
[[nodiscard]] Placement parse_placement(std::string_view text);

/// Reads a comma-separated list, with or without brackets: `[S(0), R]`, `S0,R`, `SS(0,2),P(max)`.
[[nodiscard]] Placements parse_placements(std::string_view text);

}  // namespace tessera

template <>
struct std::hash<tessera::Replicate> {
  std::size_t operator()(const tessera::Replicate&) const noexcept { return 1; }
};
template <>
struct std::hash<tessera::Shard> {
  std::size_t operator()(const tessera::Shard& shard) const noexcept {
    return tessera::hash_combine(2, static_cast<std::size_t>(shard.dim));
  }
};
template <>
struct std::hash<tessera::StridedShard> {
  std::size_t operator()(const tessera::StridedShard& shard) const noexcept {
    return tessera::hash_combine(tessera::hash_combine(3, static_cast<std::size_t>(shard.dim)),
                                 static_cast<std::size_t>(shard.split_factor));
  }
};
template <>
struct std::hash<tessera::Partial> {
  std::size_t operator()(const tessera::Partial& partial) const noexcept {
    return tessera::hash_combine(4, static_cast<std::size_t>(partial.op));
  }
};
