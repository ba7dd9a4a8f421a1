#include "tessera/tensor/composite_overrides.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include <ATen/core/Reduction.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/max_pool1d_with_indices.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/tensor_split.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include "tessera/base/check.h"
#include "tessera/comm/collectives.h"
#include "tessera/tensor/cross_entropy.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/linalg_composites.h"

namespace tessera::detail {
namespace {

at::Tensor max_pool1d(const at::Tensor& self, at::IntArrayRef kernel_size, at::IntArrayRef stride,
                      at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(
      at::max_pool1d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

/// The numbers in a tensor of integers, wherever they are.
std::vector<std::int64_t> numbers_in(const at::Tensor& tensor) {
  const at::NoGradGuard no_history;
  at::Tensor plain = is_dtensor(tensor) ? full_tensor(tensor) : tensor;
  plain = plain.to(at::kCPU, at::kLong).reshape({-1}).contiguous();
  const auto* begin = plain.const_data_ptr<std::int64_t>();
  return {begin, begin + plain.numel()};
}

std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& where,
                                     std::int64_t dim) {
  TESSERA_CHECK(where.dim() <= 1, "tensor_split: indices of ", where.dim(),
                " dims given; allowed are 0 (a number of sections) and 1 (where to cut)");
  const auto numbers = numbers_in(where);
  if (where.dim() == 0) return at::tensor_split(self, numbers.at(0), dim);
  return at::tensor_split(self, at::IntArrayRef(numbers), dim);
}

/// Numbers that all ranks know, beside a DTensor.
at::Tensor numbers_like(const std::vector<std::int64_t>& numbers, const at::Tensor& like) {
  const at::Tensor plain = at::tensor(numbers, at::kLong).to(like.scalar_type());
  if (!is_dtensor(like)) return plain;
  const DeviceMesh& mesh = mesh_of(like);
  return distribute_tensor(plain, mesh,
                           Placements(static_cast<std::size_t>(mesh.ndim()), Replicate()),
                           {.src_data_rank = std::nullopt});
}

at::Tensor ctc_loss_of_numbers(const at::Tensor& log_probs, const at::Tensor& targets,
                               at::IntArrayRef input_lengths, at::IntArrayRef target_lengths,
                               std::int64_t blank, std::int64_t reduction, bool zero_infinity) {
  const at::Tensor losses = std::get<0>(
      at::_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity));
  const at::Tensor finite = zero_infinity ? losses.masked_fill(at::isinf(losses), 0) : losses;
  if (reduction == at::Reduction::None) return finite;
  if (reduction == at::Reduction::Sum) return finite.sum();
  std::vector<std::int64_t> lengths = target_lengths.vec();
  for (auto& length : lengths) length = std::max<std::int64_t>(length, 1);
  return finite.div(numbers_like(lengths, finite)).mean();
}

at::Tensor ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets,
                    const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                    std::int64_t blank, std::int64_t reduction, bool zero_infinity) {
  return ctc_loss_of_numbers(log_probs, targets, numbers_in(input_lengths),
                             numbers_in(target_lengths), blank, reduction, zero_infinity);
}

at::Tensor one_hot(const at::Tensor& self, std::int64_t num_classes) {
  TESSERA_CHECK(self.scalar_type() == at::kLong, "one_hot: a tensor of ", self.scalar_type(),
                " given; it is only applicable to index tensors (int64)");
  std::int64_t count = std::max<std::int64_t>(num_classes, 1);
  if (self.numel() > 0) {
    const std::int64_t least = numbers_in(self.min()).at(0);
    const std::int64_t greatest = numbers_in(self.max()).at(0);
    TESSERA_CHECK(least >= 0, "one_hot: class ", least, " given; classes must be 0 or more");
    if (num_classes == -1) count = greatest + 1;
    TESSERA_CHECK(greatest < count, "one_hot: class ", greatest, " given for ", num_classes,
                  " classes; classes must be smaller than num_classes");
  } else {
    TESSERA_CHECK(num_classes > 0, "one_hot: the number of classes cannot be told from an empty ",
                  "tensor; pass num_classes");
  }
  std::vector<std::int64_t> classes(static_cast<std::size_t>(count));
  std::iota(classes.begin(), classes.end(), std::int64_t{0});
  return self.unsqueeze(-1).eq(numbers_like(classes, self)).to(at::kLong);
}

at::Tensor cross_entropy(const at::Tensor& self, const at::Tensor& target,
                         const std::optional<at::Tensor>& weight, std::int64_t reduction,
                         c10::SymInt ignore_index,  // NOLINT(performance-unnecessary-value-param)
                         double label_smoothing) {
  return detail::cross_entropy_loss(self, target, weight, reduction,
                                    ignore_index.guard_int(__FILE__, __LINE__), label_smoothing);
}

/// Lets `x.set_data(y)` make a DTensor of a plain tensor, or the other way round: so a module that
/// holds DTensors can be cloned.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return self.layout() == at::kStrided && from.layout() == at::kStrided;
}

/// Drops whole channels. libtorch's own makes the mask as a plain tensor.
at::Tensor feature_dropout(const at::Tensor& input, double p, bool train) {
  TESSERA_CHECK(p >= 0 && p <= 1, "feature_dropout: a probability of ", p,
                " given; allowed are 0 to 1");
  TESSERA_CHECK(input.dim() >= 2, "feature_dropout: a tensor of ", input.dim(),
                " dims given; it needs samples and channels");
  if (!train || p == 0 || input.numel() == 0) return input;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(input.dim()), 1);
  sizes[0] = input.size(0);
  sizes[1] = input.size(1);
  at::Tensor kept;
  {
    const at::NoGradGuard no_history;
    kept = input.new_empty(sizes).bernoulli_(1 - p);
    if (p < 1) kept.div_(1 - p);
  }
  return input.mul(kept);
}

/// Attention written out. libtorch's own makes the mask of causal attention as a plain tensor.
std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& query, const at::Tensor& key,
                                             const at::Tensor& value,
                                             const std::optional<at::Tensor>& mask, double dropout,
                                             bool is_causal,
                                             const std::optional<at::Tensor>& dropout_mask,
                                             std::optional<double> scale, bool enable_gqa) {
  TESSERA_CHECK(!dropout_mask.has_value(),
                "scaled_dot_product_attention: a dropout_mask given for ",
                "DTensors; pass dropout_p, which draws by tessera::manual_seed");
  TESSERA_CHECK(!is_causal || !mask.has_value(),
                "scaled_dot_product_attention: is_causal and a mask given; pass one of them");
  const double factor =
      scale.value_or(1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(query.size(-1), 1))));
  const auto per_query = [&](const at::Tensor& tensor) {
    return enable_gqa ? tensor.repeat_interleave(query.size(-3) / tensor.size(-3), -3) : tensor;
  };
  at::Tensor scores = query.mul(factor).matmul(per_query(key).transpose(-2, -1));
  if (is_causal) {
    const at::Tensor seen =
        query.new_ones({query.size(-2), key.size(-2)}, at::TensorOptions().dtype(at::kBool)).tril();
    scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  } else if (mask.has_value() && mask->scalar_type() == at::kBool) {
    scores = scores.masked_fill(mask->logical_not(), -std::numeric_limits<double>::infinity());
  } else if (mask.has_value()) {
    scores = scores.add(*mask);
  }
  at::Tensor weights = at::_safe_softmax(scores, -1);
  if (dropout > 0) weights = at::dropout(weights, dropout, /*train=*/true);
  return {weights.matmul(per_query(value)).to(query.scalar_type()), weights};
}

}  // namespace

void override_composites() {
  // In inference mode there is no autograd, and calls come to the other key at once.
  for (const auto key : {c10::DispatchKey::AutogradPrivateUse2, c10::DispatchKey::PrivateUse2}) {
    // Never taken back: at the end of the program the dispatcher may be gone first.
    static auto& libraries = *new std::vector<std::unique_ptr<torch::Library>>;
    const auto& library = libraries.emplace_back(
        std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__));
    library->impl("max_pool1d", &max_pool1d);
    library->impl("tensor_split.tensor_indices_or_sections", &tensor_split);
    library->impl("ctc_loss.IntList", &ctc_loss_of_numbers);
    library->impl("ctc_loss.Tensor", &ctc_loss);
    library->impl("one_hot", &one_hot);
    library->impl("cross_entropy_loss", &cross_entropy);
    library->impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
    library->impl("feature_dropout", &feature_dropout);
    library->impl("_scaled_dot_product_attention_math", &attention);
    override_recurrent(*library);
    override_linalg_composites(*library);
  }
}

}  // namespace tessera::detail
