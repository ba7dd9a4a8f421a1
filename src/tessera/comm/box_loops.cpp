#include "tessera/comm/box_loops.h"

#include <algorithm>

#include <ATen/core/Tensor.h>

namespace tessera::detail {
namespace {

bool has_elements(std::span<const Extent> box) {
  return std::all_of(box.begin(), box.end(), [](const Extent& extent) { return extent.size > 0; });
}

/// How many bytes lie before the first element of a box.
std::int64_t bytes_before(const at::Tensor& tensor, std::span<const Extent> box) {
  std::int64_t elements = 0;
  const auto strides = tensor.strides();
  for (std::size_t d = 0; d < box.size(); ++d) elements += box[d].begin * strides[d];
  return elements * static_cast<std::int64_t>(tensor.element_size());
}

/// How many bytes each index of a box is from the next when its elements lie one behind the other.
c10::SmallVector<std::int64_t, 8> packed_strides(std::span<const Extent> box,
                                                 std::int64_t element) {
  c10::SmallVector<std::int64_t, 8> strides(box.size());
  for (std::size_t d = box.size(); d-- > 0;) {
    strides[d] = element;
    element *= box[d].size;
  }
  return strides;
}

}  // namespace

void BoxLoops::add(const Loop& inner) {
  if (inner.size == 1) return;
  if (!loops.empty() && loops.back().out_stride == inner.size * inner.out_stride &&
      loops.back().in_stride == inner.size * inner.in_stride) {
    loops.back() = {loops.back().size * inner.size, inner.out_stride, inner.in_stride};
  } else {
    loops.push_back(inner);
  }
}

BoxLoops::BoxLoops(const at::Tensor& out_tensor, std::span<const Extent> out_box,
                   const at::Tensor& in_tensor, std::span<const Extent> in_box) {
  if (!has_elements(out_box)) return;
  const auto element = static_cast<std::int64_t>(out_tensor.element_size());
  const auto out_strides = out_tensor.strides();
  const auto in_strides = in_tensor.strides();
  for (std::size_t d = 0; d < out_box.size(); ++d) {
    add({out_box[d].size, out_strides[d] * element, in_strides[d] * element});
  }
  out = static_cast<std::byte*>(out_tensor.data_ptr()) + bytes_before(out_tensor, out_box);
  in = static_cast<const std::byte*>(in_tensor.const_data_ptr()) + bytes_before(in_tensor, in_box);
}

BoxLoops::BoxLoops(std::byte* packed, const at::Tensor& in_tensor, std::span<const Extent> in_box) {
  if (!has_elements(in_box)) return;
  const auto element = static_cast<std::int64_t>(in_tensor.element_size());
  const auto strides = packed_strides(in_box, element);
  for (std::size_t d = 0; d < in_box.size(); ++d) {
    add({in_box[d].size, strides[d], in_tensor.strides()[d] * element});
  }
  out = packed;
  in = static_cast<const std::byte*>(in_tensor.const_data_ptr()) + bytes_before(in_tensor, in_box);
}

BoxLoops::BoxLoops(const at::Tensor& out_tensor, std::span<const Extent> out_box,
                   const std::byte* packed) {
  if (!has_elements(out_box)) return;
  const auto element = static_cast<std::int64_t>(out_tensor.element_size());
  const auto strides = packed_strides(out_box, element);
  for (std::size_t d = 0; d < out_box.size(); ++d) {
    add({out_box[d].size, out_tensor.strides()[d] * element, strides[d]});
  }
  out = static_cast<std::byte*>(out_tensor.data_ptr()) + bytes_before(out_tensor, out_box);
  in = packed;
}

}  // namespace tessera::detail
