#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::detail {

/// A tensor's elements as integers of a dtype that every backend can move.
struct MovedView {
  /// Of one dim; shares the tensor's memory.
  at::Tensor data;
  /// So many integers make up one element.
  std::int64_t width;
};

/// `tensor` must be contiguous.
[[nodiscard]] MovedView moved_view(const at::Tensor& tensor);

}  // namespace tessera::detail
