#include "tessera/comm/collectives_autograd.h"

#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/comm/pending_tensor.h"

namespace tessera::detail {
namespace {

constexpr const char* kCollective = "collective";
constexpr const char* kName = "name";
constexpr const char* kInputCount = "input_count";

/// Issues a collective and returns its results, which are pending if `async_op`.
Tensors run(const Call& call, const Collective& collective, const Tensors& inputs, bool async_op) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto issued = collective.issue(call, inputs);
  // Waiting takes what is waited for out of `issued`, not the results.
  if (!async_op) {
    issued->wait();
    return issued->results;
  }
  Tensors pending;
  pending.reserve(issued->results.size());
  for (const auto& result : issued->results) {
    pending.push_back(make_pending_tensor(result, issued, call.world()));
  }
  return pending;
}

struct CollectiveFunction : torch::autograd::Function<CollectiveFunction> {
  // The arguments behind the inputs have no gradients.
  static constexpr std::size_t kOtherArguments = 3;

  static Tensors forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                         const Call* call, const c10::intrusive_ptr<Collective>& collective,
                         bool async_op) {
    Tensors outputs = run(*call, *collective, inputs.vec(), async_op);
    context->saved_data[kCollective] = c10::IValue::make_capsule(collective);
    context->saved_data[kName] = call->name();
    context->saved_data[kInputCount] = static_cast<std::int64_t>(inputs.size());
    if (collective->needs_values()) {
      Tensors values = inputs.vec();
      values.insert(values.end(), outputs.begin(), outputs.end());
      context->save_for_backward(std::move(values));
    }
    return outputs;
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const auto capsule = context->saved_data[kCollective].toCapsule();
    const auto& collective = static_cast<const Collective&>(*capsule);
    const CauseScope cause(
        [&] { return concat("backward of ", context->saved_data[kName].toStringRef()); });
    const Tensors values = collective.needs_values() ? context->get_saved_variables() : Tensors();
    const auto count = context->saved_data[kInputCount].toInt();
    const auto middle = values.begin() + (values.empty() ? 0 : count);
    Tensors results = collective.backward(gradients, Tensors(values.begin(), middle),
                                          Tensors(middle, values.end()));
    results.resize(results.size() + kOtherArguments);
    return results;
  }
};

bool records_history(const Collective& collective, const Tensors& inputs) {
  return at::GradMode::is_enabled() && collective.is_differentiable() &&
         std::any_of(inputs.begin(), inputs.end(),
                     [](const at::Tensor& input) { return input.requires_grad(); });
}

}  // namespace

Tensors perform(const Call& call, const c10::intrusive_ptr<Collective>& collective,
                const Tensors& inputs, bool async_op) {
  if (!records_history(*collective, inputs)) return run(call, *collective, inputs, async_op);
  return CollectiveFunction::apply(at::TensorList(inputs), &call, collective, async_op);
}

at::Tensor perform(const Call& call, const c10::intrusive_ptr<Collective>& collective,
                   const at::Tensor& input, bool async_op) {
  return perform(call, collective, Tensors{input}, async_op).front();
}

}  // namespace tessera::detail
