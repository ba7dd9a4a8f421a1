#include "tessera/comm/c10d/moved_view.h"

namespace tessera::detail {

MovedView moved_view(const at::Tensor& tensor) {
  const auto element = static_cast<std::int64_t>(tensor.element_size());
  const at::ScalarType type = element % 8 == 0 ? at::kLong : element == 4 ? at::kInt : at::kByte;
  const auto unit = static_cast<std::int64_t>(c10::elementSize(type));
  // A single element may have any stride and be contiguous, but cannot be cut into smaller ones.
  return {tensor.as_strided({tensor.numel()}, {1}).view(type), element / unit};
}

}  // namespace tessera::detail
