#pragma once

#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace tessera::detail {

/// True when what is made of a tensor must remember it.
[[nodiscard]] inline bool needs_history(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.requires_grad();
}

/// Makes `result` remember that it was made of `input`: a `Node`, made of `arguments`, turns its
/// gradient into that of the input.
///
/// libtorch's `autograd::Function` does the same, and keeps what nodes remember in a map of boxed
/// values, which takes microseconds per call.
template <typename Node, typename... Arguments>
void record_history(const at::Tensor& result, const at::Tensor& input, Arguments&&... arguments) {
  auto node = c10::make_intrusive<Node>(std::forward<Arguments>(arguments)...);
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(result, std::move(node));
}

}  // namespace tessera::detail
