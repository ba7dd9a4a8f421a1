#pragma once

#include <ATen/core/ivalue.h>

#include "tessera/comm/collectives_issue.h"

namespace tessera::detail {

/// One call of a collective as autograd sees it: a function from tensors to tensors.
class Collective : public torch::CustomClassHolder {
 public:
  /// Starts to compute the function; called once. `inputs` are plain tensors.
  [[nodiscard]] virtual IssuedPtr issue(const Call& call, const Tensors& inputs) const = 0;

  /// Returns the gradients of the inputs from those of the outputs, by differentiable means.
  /// `inputs` and `outputs` are those of the call if `needs_values`, else empty.
  [[nodiscard]] virtual Tensors backward(const Tensors& gradients, const Tensors& inputs,
                                         const Tensors& outputs) const = 0;

  /// Whether gradients depend on inputs and outputs.
  [[nodiscard]] virtual bool needs_values() const { return false; }
  [[nodiscard]] virtual bool is_differentiable() const { return true; }
};

/// Carries a collective out, with autograd, for a call that the members have agreed on.
Tensors perform(const Call& call, const c10::intrusive_ptr<Collective>& collective,
                const Tensors& inputs, bool async_op);

/// The same for one tensor.
at::Tensor perform(const Call& call, const c10::intrusive_ptr<Collective>& collective,
                   const at::Tensor& input, bool async_op);

}  // namespace tessera::detail
