#include <algorithm>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/count_nonzero.h>
#include <torch/library.h>

#include "tessera/tensor/composite_overrides.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/factories.h"

namespace tessera::detail {
namespace {

/// torch::nn::LSTM and its kin begin with zeros unless they are given a state, and make them as a plain
/// tensor. Those become a DTensor; anything else stays what it is.
at::Tensor state_on_mesh_of(const at::Tensor& input, const at::Tensor& state) {
  if (!state.defined() || is_dtensor(state) || state.requires_grad()) return state;
  if (state.count_nonzero().item<std::int64_t>() != 0) return state;
  return zeros(state.sizes().vec(), mesh_of(input), {}, state.options());
}

/// The recurrent networks of libtorch, whose second argument is a state or several.
void run_recurrent(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
                   torch::jit::Stack* stack) {
  const std::size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor input = (*stack)[first].toTensor();
  auto& state = (*stack)[first + 1];
  if (is_dtensor(input) && state.isTensor()) {
    state = state_on_mesh_of(input, state.toTensor());
  } else if (is_dtensor(input) && state.isTensorList()) {
    auto states = state.toTensorVector();
    for (auto& each : states) each = state_on_mesh_of(input, each);
    state = states;
  }
  // libtorch's own function for every kind of tensor, which calls other ops.
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::AutogradCPU), stack);
}

}  // namespace

void override_recurrent(torch::Library& library) {
  for (const auto* name : {"lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input",
                           "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_recurrent>());
  }
}

}  // namespace tessera::detail
