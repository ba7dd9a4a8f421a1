#pragma once

#include <cstdint>
#include <span>

#include "tessera/layout/chunk.h"
#include "tessera/layout/placement.h"

namespace at {
class Tensor;
}

namespace tessera::detail {

/// Reduces `count` elements of a contiguous tensor into another; an average only sums.
void reduce_flat(const at::Tensor& out, std::int64_t out_begin, const at::Tensor& in,
                 std::int64_t in_begin, std::int64_t count, ReduceOp op);

/// Reduces a box of one tensor into a box of another; an average only sums.
void reduce_box(const at::Tensor& out, std::span<const Extent> out_box, const at::Tensor& in,
                std::span<const Extent> in_box, ReduceOp op);

/// Divides a tensor by a number, for averages.
void divide(at::Tensor data, std::int64_t divisor);

/// Fills a tensor with the value that changes nothing in a reduction by `op`.
void fill_with_identity(const at::Tensor& data, ReduceOp op);

}  // namespace tessera::detail
