#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/comm/box_reduce.h"
#include "tessera/layout/chunk.h"

namespace at {
class Tensor;
}

namespace tessera::detail {

/// Copies `count` elements between contiguous tensors of the same dtype.
void copy_flat(const at::Tensor& out, std::int64_t out_begin, const at::Tensor& in,
               std::int64_t in_begin, std::int64_t count);

/// Copies a box of one tensor to a box of the same sizes of another; neither need be contiguous.
void copy_box(const at::Tensor& out, std::span<const Extent> out_box, const at::Tensor& in,
              std::span<const Extent> in_box);

/// The same from a box to memory of the host in which its elements lie one behind the other, and back.
/// The tensor is in host memory too.
void pack_box(std::byte* packed, const at::Tensor& in, std::span<const Extent> box);
void unpack_box(const at::Tensor& out, std::span<const Extent> box, const std::byte* packed);

/// True when the processor reaches both tensors' memory.
[[nodiscard]] bool is_host(const at::Tensor& a, const at::Tensor& b);

/// A box of a tensor as a tensor of its own.
[[nodiscard]] at::Tensor box_view(const at::Tensor& tensor, std::span<const Extent> box);

}  // namespace tessera::detail
