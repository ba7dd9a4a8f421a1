#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>

namespace tessera::detail {

/// Note [Memory of large tensors]
///
/// A large tensor from `at::empty` is memory that the process does not have yet: the system hands it
/// out page by page while it is first written, which takes several times as long as the writing.
/// So the tensors that a redistribution makes in host memory, from 4 MB on, are made of huge pages
/// where the system has them, which cost a third; and when they are dropped, up to 256 MB per process
/// are kept for the next ones, which then cost nothing. What was kept longest goes first.
/// `TESSERA_KEEP_MEMORY` is another number of MB to keep; 0 keeps nothing.

/// Returns a contiguous tensor whose values are not set, like `at::empty`.
[[nodiscard]] at::Tensor new_tensor(at::IntArrayRef sizes, const at::TensorOptions& options);

/// How many bytes are kept at the moment.
[[nodiscard]] std::size_t kept_bytes();

/// Keeps at most `bytes` from now on, and returns how many it was before.
std::size_t set_kept_bytes_limit(std::size_t bytes);

}  // namespace tessera::detail
