#include "tessera/nn/optimizer_state.h"

#include <unordered_map>

#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include "tessera/base/check.h"
#include "tessera/comm/recorder.h"
#include "tessera/nn/load_value.h"
#include "tessera/nn/module_tensors.h"
#include "tessera/nn/near_names.h"
#include "tessera/nn/optimizer_fields.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::nn {
namespace {

using torch::optim::Optimizer;

/// The optimizer's parameters by the names that they have in a module.
std::map<std::string, at::Tensor> named_parameters(Optimizer& optimizer,
                                                   torch::nn::Module& module) {
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for (const auto& own : detail::all_tensors(module)) {
    names.emplace(own.tensor.unsafeGetTensorImpl(), own.name);
  }
  std::map<std::string, at::Tensor> result;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      const auto found = names.find(parameter.unsafeGetTensorImpl());
      TESSERA_CHECK(found != names.end(), "optimizer state: the optimizer has a parameter of ",
                    "sizes [", joined(parameter.sizes(), ","),
                    "] that is not one of the module's; ",
                    "pass the module that the optimizer was made for");
      result.emplace(found->second, parameter);
    }
  }
  return result;
}

torch::optim::OptimizerParamState* state_of(Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : found->second.get();
}

/// Says what does not fit; nothing if all does.
std::string problems_of(const std::map<std::string, at::Tensor>& fields, const StateDict& state) {
  std::vector<std::string> known;
  for (const auto& [name, parameter] : fields) known.push_back(name);
  std::string text;
  for (const auto& [name, value] : state) {
    const auto found = fields.find(name);
    if (found == fields.end()) {
      text += concat("; unexpected: '", name, "', ", detail::near_names_text(name, known));
      continue;
    }
    // Numbers of steps have no parameter to compare with.
    const bool fits =
        value.defined() &&
        (found->second.defined() ? value.sizes() == found->second.sizes() : value.numel() == 1);
    if (!fits) text += concat("; '", name, "' has another shape than it should");
  }
  return text;
}

/// Every field that an optimizer could have, with its parameter; none for a number.
std::map<std::string, at::Tensor> possible_fields(
    Optimizer& optimizer, const std::map<std::string, at::Tensor>& parameters) {
  std::map<std::string, at::Tensor> fields;
  const auto example = detail::make_param_state(optimizer);
  for (const auto& item : parameters) {
    const std::string prefix = item.first + ".";
    const at::Tensor parameter = item.second;
    detail::visit_fields(
        *example,
        {.tensor = [&](const char* name, at::Tensor&) { fields.emplace(prefix + name, parameter); },
         .number = [&](const char* name,
                       std::int64_t&) { fields.emplace(prefix + name, at::Tensor()); }});
  }
  return fields;
}

}  // namespace

StateDict optimizer_state_dict(Optimizer& optimizer, torch::nn::Module& module) {
  StateDict result;
  for (const auto& item : named_parameters(optimizer, module)) {
    auto* state = state_of(optimizer, item.second);
    if (state == nullptr) continue;
    const std::string prefix = item.first + ".";
    detail::visit_fields(*state, {.tensor =
                                      [&](const char* name, at::Tensor& tensor) {
                                        if (tensor.defined())
                                          result.emplace(prefix + name, tensor.detach());
                                      },
                                  .number =
                                      [&](const char* name, std::int64_t& number) {
                                        result.emplace(prefix + name,
                                                       at::scalar_tensor(number, at::kLong));
                                      }});
  }
  return result;
}

StateDict full_optimizer_state_dict(Optimizer& optimizer, torch::nn::Module& module) {
  const at::NoGradGuard no_history;
  const tessera::detail::CauseScope cause("full_optimizer_state_dict");
  StateDict state = optimizer_state_dict(optimizer, module);
  for (auto& [name, tensor] : state) {
    tensor = is_dtensor(tensor) ? full_tensor(tensor).clone() : tensor.clone();
  }
  return state;
}

void load_optimizer_state_dict(Optimizer& optimizer, torch::nn::Module& module,
                               const StateDict& state, const LoadStateOptions& options) {
  const auto parameters = named_parameters(optimizer, module);
  const auto problems = problems_of(possible_fields(optimizer, parameters), state);
  TESSERA_CHECK(problems.empty(), "load_optimizer_state_dict: the state does not fit", problems);
  const at::NoGradGuard no_history;
  const tessera::detail::CauseScope cause("load_optimizer_state_dict");
  for (const auto& item : parameters) {
    const std::string prefix = item.first + ".";
    const at::Tensor& parameter = item.second;
    const auto first = state.lower_bound(prefix);
    if (first == state.end() || !first->first.starts_with(prefix)) continue;
    auto& own = optimizer.state()[parameter.unsafeGetTensorImpl()];
    if (own == nullptr) own = detail::make_param_state(optimizer);
    detail::visit_fields(
        *own, {.tensor =
                   [&](const char* name, at::Tensor& tensor) {
                     const auto found = state.find(prefix + name);
                     if (found == state.end()) return;
                     tensor =
                         detail::placed_like(parameter, found->second.detach(), options).clone();
                   },
               .number =
                   [&](const char* name, std::int64_t& number) {
                     const auto found = state.find(prefix + name);
                     if (found != state.end()) number = found->second.item<std::int64_t>();
                   }});
  }
}

void distribute_optimizer_state(Optimizer& optimizer) {
  const at::NoGradGuard no_history;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) {
      auto* state = state_of(optimizer, parameter);
      if (state == nullptr || !is_dtensor(parameter)) continue;
      detail::visit_fields(*state,
                           {.tensor =
                                [&](const char* /*name*/, at::Tensor& tensor) {
                                  if (!tensor.defined()) return;
                                  tensor = detail::placed_like(parameter, tensor, {});
                                },
                            .number = [](const char* /*name*/, std::int64_t& /*number*/) {}});
    }
  }
}

}  // namespace tessera::nn
