#include "tessera/tensor/memory_order.h"

#include <algorithm>
#include <numeric>

#include <ATen/ops/empty_strided.h>

namespace tessera::detail {
namespace {

/// Dense strides of `sizes` whose order in memory is that of `strides`.
std::vector<std::int64_t> dense_strides(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return strides[a] > strides[b]; });
  std::vector<std::int64_t> dense(sizes.size());
  std::int64_t step = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    dense[*dim] = step;
    step *= std::max<std::int64_t>(sizes[*dim], 1);
  }
  return dense;
}

}  // namespace

at::Tensor in_memory_order(const at::Tensor& local, const GlobalStrides& strides) {
  if (strides.strides.empty()) return local.is_contiguous() ? local : local.contiguous();
  const auto wanted = dense_strides(local.sizes(), strides.strides);
  bool is_so = true;
  for (std::size_t dim = 0; dim < wanted.size(); ++dim) {
    const auto at = static_cast<std::int64_t>(dim);
    is_so = is_so && (local.size(at) <= 1 || local.stride(at) == wanted[dim]);
  }
  if (is_so || local.numel() == 0) return local;
  auto copy = at::empty_strided(local.sizes(), wanted, local.options());
  copy.copy_(local);
  return copy;
}

GlobalStrides strides_of(const at::Tensor& tensor) {
  if (tensor.is_contiguous() && tensor.storage_offset() == 0) return {};
  return {.strides = tensor.strides().vec(), .offset = tensor.storage_offset()};
}

}  // namespace tessera::detail
