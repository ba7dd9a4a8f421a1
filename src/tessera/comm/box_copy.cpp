#include "tessera/comm/box_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include "tessera/comm/box_loops.h"
#include "tessera/comm/stream_copy.h"

namespace tessera::detail {
namespace {

/// Copies single values of `width` bytes along two loops. Where the input runs on along the rows,
/// as in a transposed tensor, it does so in tiles that stay in the cache.
template <std::size_t width>
void copy_plane(std::byte* out, const std::byte* in, const Loop& rows, const Loop& columns) {
  constexpr std::int64_t kTile = 32;
  const bool transposed = rows.in_stride < columns.in_stride;
  const std::int64_t tall = transposed ? kTile : rows.size;
  const std::int64_t wide = transposed ? kTile : columns.size;
  for (std::int64_t row = 0; row < rows.size; row += tall) {
    const std::int64_t row_end = std::min(row + tall, rows.size);
    for (std::int64_t column = 0; column < columns.size; column += wide) {
      const std::int64_t column_end = std::min(column + wide, columns.size);
      for (std::int64_t r = row; r < row_end; ++r) {
        std::byte* to = out + r * rows.out_stride;
        const std::byte* from = in + r * rows.in_stride;
        for (std::int64_t c = column; c < column_end; ++c) {
          std::memcpy(to + c * columns.out_stride, from + c * columns.in_stride, width);
        }
      }
    }
  }
}

/// Copies single values of `width` bytes.
template <std::size_t width>
void copy_values(BoxLoops box) {
  auto& loops = box.loops;
  if (loops.size() > 1) {
    // The loop along which the input runs on becomes the neighbour of the innermost one.
    const auto last = loops.end() - 1;
    const auto nearest =
        std::min_element(loops.begin(), loops.end(),
                         [](const Loop& a, const Loop& b) { return a.in_stride < b.in_stride; });
    if (nearest != last) std::rotate(nearest, nearest + 1, last);
  }
  while (loops.size() < 2) loops.insert(loops.begin(), Loop{1, 0, 0});
  const Loop* rows = loops.end() - 2;
  for_each_round(box.out, box.in, loops.begin(), rows, [&](std::byte* out, const std::byte* in) {
    copy_plane<width>(out, in, rows[0], rows[1]);
  });
}

/// Copies rows that are contiguous in both tensors.
void copy_rows(const BoxLoops& box, std::size_t bytes) {
  if (is_worth_streaming(box, bytes)) return stream_rows(box, bytes);
  for_each_round(box.out, box.in, box.loops.begin(), box.loops.end(),
                 [&](std::byte* out, const std::byte* in) { std::memcpy(out, in, bytes); });
}

void copy_host_box(BoxLoops box, std::int64_t element) {
  if (box.out == nullptr) return;
  auto& loops = box.loops;
  std::int64_t bytes = element;
  if (!loops.empty() && loops.back().out_stride == element && loops.back().in_stride == element) {
    bytes *= loops.back().size;
    loops.pop_back();
  }
  // Short rows are copied like single values, by instructions instead of calls.
  switch (bytes) {
    case 1:
      return copy_values<1>(std::move(box));
    case 2:
      return copy_values<2>(std::move(box));
    case 4:
      return copy_values<4>(std::move(box));
    case 8:
      return copy_values<8>(std::move(box));
    case 16:
      return copy_values<16>(std::move(box));
    default:
      return copy_rows(box, static_cast<std::size_t>(bytes));
  }
}

}  // namespace

bool is_host(const at::Tensor& a, const at::Tensor& b) {
  return a.device().is_cpu() && b.device().is_cpu();
}

at::Tensor box_view(const at::Tensor& tensor, std::span<const Extent> box) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor view = tensor;
  for (std::size_t d = 0; d < box.size(); ++d) {
    view = view.narrow(static_cast<std::int64_t>(d), box[d].begin, box[d].size);
  }
  return view;
}

void copy_flat(const at::Tensor& out, std::int64_t out_begin, const at::Tensor& in,
               std::int64_t in_begin, std::int64_t count) {
  if (count == 0) return;
  if (!is_host(out, in)) {
    out.view(-1).narrow(0, out_begin, count).copy_(in.view(-1).narrow(0, in_begin, count));
    return;
  }
  const auto element = static_cast<std::int64_t>(out.element_size());
  std::memcpy(static_cast<std::byte*>(out.data_ptr()) + out_begin * element,
              static_cast<const std::byte*>(in.const_data_ptr()) + in_begin * element,
              static_cast<std::size_t>(count * element));
}

void copy_box(const at::Tensor& out, std::span<const Extent> out_box, const at::Tensor& in,
              std::span<const Extent> in_box) {
  if (is_host(out, in)) {
    copy_host_box(BoxLoops(out, out_box, in, in_box),
                  static_cast<std::int64_t>(out.element_size()));
  } else {
    box_view(out, out_box).copy_(box_view(in, in_box));
  }
}

void pack_box(std::byte* packed, const at::Tensor& in, std::span<const Extent> box) {
  copy_host_box(BoxLoops(packed, in, box), static_cast<std::int64_t>(in.element_size()));
}

void unpack_box(const at::Tensor& out, std::span<const Extent> box, const std::byte* packed) {
  copy_host_box(BoxLoops(out, box, packed), static_cast<std::int64_t>(out.element_size()));
}

}  // namespace tessera::detail
