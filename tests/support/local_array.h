#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "tessera/layout/layout.h"

namespace tessera::test {

/// A rank's local tensor of labelled elements, row-major.
struct LocalArray {
  Shape shape;
  std::vector<std::int64_t> data;

  LocalArray() = default;
  explicit LocalArray(Shape array_shape, std::int64_t value = 0)
      : shape(std::move(array_shape)), data(static_cast<std::size_t>(numel_of(shape)), value) {}

  static std::int64_t numel_of(const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
};

/// Calls visit(flat index) for every element of a box of an array, in row-major order.
template <typename Visit>
void for_each_in_box(const Shape& shape, std::span<const Extent> box, Visit visit) {
  for (const auto& extent : box) {
    if (extent.size == 0) return;
  }
  std::vector<std::int64_t> index;
  for (const auto& extent : box) index.push_back(extent.begin);
  while (true) {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
    visit(static_cast<std::size_t>(flat));
    std::size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == box[d - 1].end()) {
      index[d - 1] = box[d - 1].begin;
      --d;
    }
    if (d == 0) return;
  }
}

/// Calls visit(flat global index) for every element of a part, in the order of local memory.
template <typename Visit>
void for_each_in_part(const Shape& global, const Part& part, Visit visit) {
  std::vector<std::vector<std::int64_t>> indices;
  std::vector<Extent> box;
  for (const auto& dim : part.dims) {
    std::vector<std::int64_t> all;
    for (const auto& run : dim.runs()) {
      for (std::int64_t i = run.begin; i < run.end(); ++i) all.push_back(i);
    }
    box.push_back({0, static_cast<std::int64_t>(all.size())});
    indices.push_back(std::move(all));
  }
  const Shape local = part.shape();
  for_each_in_box(local, box, [&](std::size_t flat) {
    std::int64_t rest = static_cast<std::int64_t>(flat);
    std::int64_t at = 0;
    std::int64_t stride = 1;
    for (std::size_t d = local.size(); d-- > 0;) {
      at += indices[d][static_cast<std::size_t>(rest % local[d])] * stride;
      rest /= local[d];
      stride *= global[d];
    }
    visit(static_cast<std::size_t>(at));
  });
}

inline std::int64_t identity_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::product:
      return 1;
    case ReduceOp::min:
      return std::numeric_limits<std::int64_t>::max();
    case ReduceOp::max:
      return std::numeric_limits<std::int64_t>::min();
    case ReduceOp::band:
      return -1;
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return 0;
  }
  return 0;
}

/// Combines two contributions; an average sums here and is divided at the end.
inline std::int64_t reduce(ReduceOp op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return a + b;
    case ReduceOp::product:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    case ReduceOp::bxor:
      return a ^ b;
  }
  return 0;
}

}  // namespace tessera::test
