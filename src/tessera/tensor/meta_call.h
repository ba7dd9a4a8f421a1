#pragma once

#include <optional>
#include <vector>

#include "tessera/tensor/op_call.h"

namespace tessera::detail {

/// Runs an op on tensors without data that have the global sizes and strides of its arguments, and
/// returns what it returns, the elements of lists one by one. Nothing when the op cannot be run so,
/// or refuses the arguments.
[[nodiscard]] std::optional<std::vector<at::Tensor>> run_on_meta(const OpCall& call);

/// Sizes, strides and offset of a tensor without data.
[[nodiscard]] GlobalStrides strides_on_meta(const at::Tensor& tensor);

}  // namespace tessera::detail
