#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::detail {

/// How a tensor is cut along one dim: into one piece per member of a group.
struct Cut {
  std::int64_t dim = 0;
  /// Along `dim`.
  std::vector<std::int64_t> sizes;

  [[nodiscard]] std::int64_t total() const;
};

using Tensors = std::vector<at::Tensor>;
using Cuts = std::vector<Cut>;
using Sizes = std::vector<std::int64_t>;

[[nodiscard]] inline std::size_t at_index(std::int64_t i) { return static_cast<std::size_t>(i); }

[[nodiscard]] inline std::int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

[[nodiscard]] inline std::int64_t sum(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

/// The shape with another size along `dim`.
[[nodiscard]] Sizes resized(at::IntArrayRef shape, std::int64_t dim, std::int64_t size);

/// Sizes of `chunk_extent`, one per member.
[[nodiscard]] Sizes chunk_sizes(std::int64_t length, std::int64_t members);

/// Positions of tensors that can travel in one message: of the same dtype, on the same device.
[[nodiscard]] std::vector<std::vector<std::size_t>> group_by_dtype(const Tensors& tensors);
template <typename Item>
[[nodiscard]] std::vector<Item> select(const std::vector<Item>& items,
                                       const std::vector<std::size_t>& positions) {
  std::vector<Item> selected;
  selected.reserve(positions.size());
  for (const auto position : positions) selected.push_back(items[position]);
  return selected;
}

/// How many elements each member's pieces of all tensors have; their shapes along other dims are
/// those of `tensors`.
[[nodiscard]] Sizes piece_counts(const Tensors& tensors, const Cuts& cuts);

/// The elements as a contiguous tensor of one dim: of its own memory where that is so already.
[[nodiscard]] at::Tensor flattened(const at::Tensor& x);
/// The same for several, one behind the other.
[[nodiscard]] at::Tensor flattened(const Tensors& tensors);

/// All tensors' pieces in one contiguous tensor of one dim: first all that member 0 gets, then what
/// member 1 gets, ...; may be the memory of a single tensor whose pieces lie like that.
[[nodiscard]] at::Tensor pack(const Tensors& tensors, const Cuts& cuts);

/// Where packed pieces arrive, to become tensors.
struct Arrival {
  /// Allocates tensors like those given but for their size along the cut dims.
  Arrival(const Tensors& like, Cuts arriving);

  Cuts cuts;
  Tensors tensors;
  /// As `pack` would return it; shares memory with a single tensor whose pieces lie like that.
  at::Tensor flat;
  bool shares_memory;

  /// Copies from `flat` to the tensors, where they do not share memory.
  void unpack() const;
};

/// A contiguous tensor's memory as a tensor of bytes.
[[nodiscard]] at::Tensor as_bytes(const at::Tensor& flat);
/// Numbers of elements as numbers of bytes.
[[nodiscard]] Sizes in_bytes(Sizes counts, const at::Tensor& flat);

}  // namespace tessera::detail
