#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "tessera/base/check.h"
#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

// Batch norm takes statistics over samples and positions, which may be spread over ranks: sums over
// the local parts are added up, so that nothing larger than one number per channel is moved.

/// A sum over ranks that is needed now, done once.
at::Tensor summed(const at::Tensor& tensor) {
  const auto* meta = dtensor_meta(tensor);
  if (meta == nullptr || !meta->layout().has_partial()) return tensor;
  const CauseScope cause("batch norm");
  return move(tensor, meta->mesh(), gradient_layout(meta->layout()));
}

/// One input of [n, c, ...], and what belongs to its channels.
class Channels {
 public:
  explicit Channels(const at::Tensor& input) : ndim_(input.dim()) {
    TESSERA_CHECK(ndim_ >= 2, "native_batch_norm: a tensor of ", ndim_,
                  " dims given; it needs samples and channels");
    count_ = input.size(1) == 0 ? 0 : input.numel() / input.size(1);
    others_.resize(static_cast<std::size_t>(ndim_ - 1));
    std::iota(others_.begin(), others_.end(), std::int64_t{1});
    others_.front() = 0;
  }

  /// The number of elements per channel.
  [[nodiscard]] double count() const { return static_cast<double>(count_); }
  [[nodiscard]] at::Tensor sum(const at::Tensor& tensor) const {
    return summed(tensor.sum(others_));
  }
  /// A tensor of one number per channel, to be broadcast against the input.
  [[nodiscard]] at::Tensor spread(const at::Tensor& per_channel) const {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(ndim_), 1);
    sizes[1] = per_channel.size(0);
    return per_channel.view(sizes);
  }

 private:
  std::int64_t ndim_;
  std::int64_t count_ = 0;
  std::vector<std::int64_t> others_;
};

/// The arguments on the stack; tensors that were not given are undefined.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack)
      : schema_(op.schema()), stack_(stack) {}

  [[nodiscard]] const c10::IValue* find(std::string_view name) const {
    const auto& arguments = schema_.arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == name) return &torch::jit::peek(stack_, i, arguments.size());
    }
    return nullptr;
  }
  [[nodiscard]] at::Tensor tensor(std::string_view name) const {
    const auto* value = find(name);
    return value != nullptr && value->isTensor() ? summed(value->toTensor()) : at::Tensor();
  }

 private:
  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
};

void update(const at::Tensor& running, const at::Tensor& now, double momentum) {
  running.mul_(1 - momentum).add_(now.to(running.scalar_type()), momentum);
}

/// native_batch_norm and _native_batch_norm_legit, with and without running statistics.
void run_batch_norm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Arguments arguments(op, *stack);
  const at::Tensor input = arguments.tensor("input");
  const at::Tensor weight = arguments.tensor("weight");
  const at::Tensor bias = arguments.tensor("bias");
  const auto* running_mean = arguments.find("running_mean");
  const auto* running_var = arguments.find("running_var");
  const auto is_given = [](const c10::IValue* value) {
    return value != nullptr && value->isTensor() && value->toTensor().defined();
  };
  const bool has_mean = is_given(running_mean);
  const bool has_var = is_given(running_var);
  TESSERA_CHECK(has_mean == has_var, op.operator_name(),
                ": only one of running_mean and running_var given; pass both or none");
  // Variants without the argument update the running statistics, or have none.
  const auto* training = arguments.find("training");
  const bool is_training = training == nullptr || training->toBool();
  const double eps = arguments.find("eps")->toDouble();
  const Channels channels(input);
  TESSERA_CHECK(is_training || has_mean, op.operator_name(),
                ": running_mean and running_var are needed unless training");
  at::Tensor mean;
  at::Tensor variance;
  if (is_training) {
    mean = channels.sum(input) / channels.count();
    const at::Tensor squares = channels.sum((input - channels.spread(mean)).square());
    variance = squares / channels.count();
    if (has_mean) {
      const double momentum = arguments.find("momentum")->toDouble();
      update(running_mean->toTensor(), mean, momentum);
      update(running_var->toTensor(), squares / (channels.count() - 1), momentum);
    }
  } else {
    mean = running_mean->toTensor();
    variance = running_var->toTensor();
  }
  const at::Tensor scale = (variance + eps).rsqrt();
  at::Tensor output = (input - channels.spread(mean)) * channels.spread(scale);
  if (weight.defined()) output = output * channels.spread(weight);
  if (bias.defined()) output = output + channels.spread(bias);
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, output.to(input.scalar_type()),
                   is_training ? mean : input.new_empty({0}),
                   is_training ? scale : input.new_empty({0}));
  // What other backends keep for the gradient.
  if (op.schema().returns().size() == 4) {
    torch::jit::push(*stack, input.new_empty({0}, at::TensorOptions().dtype(at::kByte)));
  }
}

void run_batch_norm_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Arguments arguments(op, *stack);
  const at::Tensor gradient = arguments.tensor("grad_out");
  const at::Tensor input = arguments.tensor("input");
  const at::Tensor weight = arguments.tensor("weight");
  const bool is_newer = arguments.find("train") == nullptr;
  const bool is_training = arguments.find(is_newer ? "update" : "train")->toBool();
  const double eps = arguments.find("eps")->toDouble();
  const auto asked = arguments.find("output_mask")->toBoolList();
  const Channels channels(input);
  const at::Tensor mean =
      is_training ? arguments.tensor("save_mean") : arguments.tensor("running_mean");
  const at::Tensor scale = is_training ? arguments.tensor(is_newer ? "save_var" : "save_invstd")
                                       : (arguments.tensor("running_var") + eps).rsqrt();
  const at::Tensor normal = (input - channels.spread(mean)) * channels.spread(scale);
  const at::Tensor of_bias = channels.sum(gradient);
  const at::Tensor of_weight = channels.sum(gradient * normal);
  at::Tensor of_input;
  if (asked[0]) {
    of_input = gradient;
    if (is_training) {
      of_input = gradient - channels.spread(of_bias / channels.count()) -
                 normal * channels.spread(of_weight / channels.count());
    }
    of_input = of_input * channels.spread(weight.defined() ? scale * weight : scale);
    of_input = of_input.to(input.scalar_type());
  }
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, of_input, asked[1] ? of_weight : at::Tensor(),
                   asked[2] ? of_bias : at::Tensor());
}

}  // namespace

void add_batch_norm_kernels(KernelTable& table) {
  table.emplace("native_batch_norm", &run_batch_norm);
  table.emplace("_native_batch_norm_legit", &run_batch_norm);
  table.emplace("_batch_norm_with_update", &run_batch_norm);
  table.emplace("batch_norm_backward", &run_batch_norm_backward);
  table.emplace("native_batch_norm_backward", &run_batch_norm_backward);
}

}  // namespace tessera::detail
