#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class Optimizer;
class OptimizerParamState;
}  // namespace torch::optim

namespace tessera::nn::detail {

/// What is done with the fields of a parameter's state.
struct FieldVisitor {
  std::function<void(const char* name, at::Tensor& tensor)> tensor;
  std::function<void(const char* name, std::int64_t& number)> number;
};

/// Visits all fields, undefined tensors too. Throws `InvalidArgument` for an optimizer that is not known.
void visit_fields(torch::optim::OptimizerParamState& state, const FieldVisitor& visitor);

/// Returns an empty state of the optimizer's kind. Throws likewise.
[[nodiscard]] std::unique_ptr<torch::optim::OptimizerParamState> make_param_state(
    const torch::optim::Optimizer& optimizer);

}  // namespace tessera::nn::detail
