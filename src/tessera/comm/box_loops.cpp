#include "tessera/comm/box_loops.h"

#include <ATen/core/Tensor.h>

namespace tessera::detail {

BoxLoops::BoxLoops(const at::Tensor& out_tensor, std::span<const Extent> out_box,
                   const at::Tensor& in_tensor, std::span<const Extent> in_box) {
  const auto element = static_cast<std::int64_t>(out_tensor.element_size());
  const auto out_strides = out_tensor.strides();
  const auto in_strides = in_tensor.strides();
  std::int64_t out_begin = 0;
  std::int64_t in_begin = 0;
  for (std::size_t d = 0; d < out_box.size(); ++d) {
    if (out_box[d].size == 0) return;
    out_begin += out_box[d].begin * out_strides[d] * element;
    in_begin += in_box[d].begin * in_strides[d] * element;
    if (out_box[d].size == 1) continue;
    const Loop inner{out_box[d].size, out_strides[d] * element, in_strides[d] * element};
    if (!loops.empty() && loops.back().out_stride == inner.size * inner.out_stride &&
        loops.back().in_stride == inner.size * inner.in_stride) {
      loops.back() = {loops.back().size * inner.size, inner.out_stride, inner.in_stride};
    } else {
      loops.push_back(inner);
    }
  }
  out = static_cast<std::byte*>(out_tensor.data_ptr()) + out_begin;
  in = static_cast<const std::byte*>(in_tensor.const_data_ptr()) + in_begin;
}

}  // namespace tessera::detail
