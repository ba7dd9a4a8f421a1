#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <c10/util/SmallVector.h>

#include "tessera/layout/chunk.h"

namespace at {
class Tensor;
}

namespace tessera::detail {

/// One of the nested loops that go over a box of two tensors at once; strides are in bytes.
struct Loop {
  std::int64_t size;
  std::int64_t out_stride;
  std::int64_t in_stride;
};

/// How a box of one tensor in host memory is gone through together with one of another.
struct BoxLoops {
  /// `out_box` and `in_box` have equal sizes.
  BoxLoops(const at::Tensor& out, std::span<const Extent> out_box, const at::Tensor& in,
           std::span<const Extent> in_box);
  /// From a box of a tensor to memory in which its elements lie one behind the other, or back.
  BoxLoops(std::byte* packed, const at::Tensor& in, std::span<const Extent> in_box);
  BoxLoops(const at::Tensor& out, std::span<const Extent> out_box, const std::byte* packed);

  /// The first elements; null for a box without elements.
  std::byte* out = nullptr;
  const std::byte* in = nullptr;
  /// Outermost first, neighbours that run on in both tensors merged; none for a single element.
  c10::SmallVector<Loop, 8> loops;

 private:
  /// Adds a loop inside of those that are there.
  void add(const Loop& inner);
};

/// Calls visit(out, in) for every round of the loops in [loop, last).
template <typename Visit>
void for_each_round(std::byte* out, const std::byte* in, const Loop* loop, const Loop* last,
                    const Visit& visit) {
  if (loop == last) {
    visit(out, in);
    return;
  }
  for (std::int64_t i = 0; i < loop->size; ++i) {
    for_each_round(out + i * loop->out_stride, in + i * loop->in_stride, loop + 1, last, visit);
  }
}

}  // namespace tessera::detail
