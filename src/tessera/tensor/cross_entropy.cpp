#include "tessera/tensor/cross_entropy.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss_native.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logsumexp.h>
#include <c10/core/GradMode.h>

#include "tessera/base/check.h"
#include "tessera/tensor/class_terms.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::detail {
namespace {

/// Arguments that are equal on all ranks may come as plain tensors.
at::Tensor on_mesh_of(const at::Tensor& logits, const at::Tensor& tensor) {
  if (is_dtensor(tensor)) return tensor;
  const DeviceMesh& mesh = mesh_of(logits);
  return from_local(tensor, mesh, Placements(static_cast<std::size_t>(mesh.ndim()), Replicate()),
                    {.shape = tensor.sizes().vec()});
}

/// A sum over ranks that is needed now.
at::Tensor summed(const at::Tensor& tensor) {
  const Layout whole = gradient_layout(layout_of(tensor));
  return redistribute(tensor, whole.placements());
}

/// The loss of one call.
class CrossEntropy {
 public:
  CrossEntropy(const at::Tensor& logits, const std::optional<at::Tensor>& weight,
               std::int64_t reduction, double smoothing)
      : class_dim_(logits.dim() == 1 ? 0 : 1),
        logits_(with_simple_classes(logits, class_dim_)),
        reduction_(reduction),
        smoothing_(smoothing) {
    if (weight && weight->defined()) weight_ = on_mesh_of(logits_, *weight);
  }

  /// The target is a class per sample.
  at::Tensor of_classes(const at::Tensor& given, std::int64_t ignore_index) const {
    const at::Tensor target = on_mesh_of(logits_, given);
    const at::Tensor ignored = target.eq(ignore_index);
    const at::Tensor classes = target.masked_fill(ignored, 0);
    check_classes(classes);
    const ClassTerms terms = terms_of(classes);
    at::Tensor losses = terms.loss;
    at::Tensor counts = ignored.logical_not().to(losses.scalar_type());
    if (weight_.defined()) {
      const at::Tensor own =
          at::index_select(weight_, 0, classes.reshape({-1})).reshape(classes.sizes());
      losses = losses * own;
      counts = counts * own;
    }
    losses = losses.masked_fill(ignored, 0);
    if (smoothing_ > 0) {
      const at::Tensor smooth = smooth_losses(terms.log_sum_exp).masked_fill(ignored, 0);
      losses = losses * (1 - smoothing_) + smooth * (smoothing_ / count());
    }
    if (reduction_ == at::Reduction::Mean) return losses.sum() / summed(counts.sum());
    return reduction_ == at::Reduction::Sum ? losses.sum() : losses;
  }

  /// The target is a probability per sample and class.
  at::Tensor of_probabilities(const at::Tensor& given) const {
    at::Tensor target = on_mesh_of(logits_, given);
    if (smoothing_ > 0) target = target * (1 - smoothing_) + smoothing_ / count();
    if (weight_.defined()) target = target * along_classes(weight_);
    const at::Tensor logs = log_sum_exp().unsqueeze(class_dim_) - logits_;
    at::Tensor losses = (logs * target).sum(class_dim_);
    if (reduction_ == at::Reduction::None) return losses;
    const double samples = static_cast<double>(losses.numel());
    return reduction_ == at::Reduction::Sum ? losses.sum() : losses.sum() / samples;
  }

 private:
  [[nodiscard]] double count() const { return static_cast<double>(logits_.size(class_dim_)); }

  void check_classes(const at::Tensor& classes) const {
    const at::NoGradGuard no_history;
    const at::Tensor own = to_local(classes);
    if (own.numel() == 0) return;
    const auto least = own.min().item<std::int64_t>();
    const auto greatest = own.max().item<std::int64_t>();
    TESSERA_CHECK(least >= 0 && greatest < logits_.size(class_dim_), "cross_entropy: Target ",
                  least < 0 ? least : greatest, " is out of bounds; classes are 0 to ",
                  logits_.size(class_dim_) - 1);
  }

  /// Where classes are whole, ordinary operations serve, and differentiate twice.
  [[nodiscard]] ClassTerms terms_of(const at::Tensor& classes) const {
    if (has_cut_classes(logits_, class_dim_)) return class_terms(logits_, classes, class_dim_);
    const at::Tensor picked =
        logits_.gather(class_dim_, classes.unsqueeze(class_dim_)).squeeze(class_dim_);
    const at::Tensor sums = log_sum_exp();
    return {sums, sums - picked};
  }

  [[nodiscard]] at::Tensor log_sum_exp() const {
    if (has_cut_classes(logits_, class_dim_)) return class_log_sum_exp(logits_, class_dim_);
    return at::logsumexp(logits_.to(at::toOpMathType(logits_.scalar_type())), class_dim_);
  }

  [[nodiscard]] at::Tensor along_classes(const at::Tensor& per_class) const {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(logits_.dim()), 1);
    sizes[static_cast<std::size_t>(class_dim_)] = -1;
    return per_class.reshape(sizes);
  }

  /// The loss against all classes alike: the sum over classes of w (log_sum_exp - logit).
  [[nodiscard]] at::Tensor smooth_losses(const at::Tensor& sums) const {
    if (!weight_.defined()) return sums * count() - logits_.sum(class_dim_);
    return sums * weight_.sum() - (logits_ * along_classes(weight_)).sum(class_dim_);
  }

  std::int64_t class_dim_;
  at::Tensor logits_;
  at::Tensor weight_;
  std::int64_t reduction_;
  double smoothing_;
};

/// What libtorch accepts; it says itself what is wrong with anything else.
bool is_usual(const at::Tensor& logits, const at::Tensor& target,
              const std::optional<at::Tensor>& weight, std::int64_t ignore_index) {
  if (!is_dtensor(logits) || logits.dim() == 0 || !logits.is_floating_point()) return false;
  const std::int64_t class_dim = logits.dim() == 1 ? 0 : 1;
  if (weight && weight->defined() &&
      (weight->dim() != 1 || weight->numel() != logits.size(class_dim))) {
    return false;
  }
  if (target.is_floating_point()) {
    return target.sizes() == logits.sizes() && ignore_index < 0;
  }
  auto sizes = logits.sizes().vec();
  sizes.erase(sizes.begin() + class_dim);
  return target.scalar_type() == at::kLong && target.sizes() == at::IntArrayRef(sizes) &&
         logits.size(class_dim) > 0;
}

}  // namespace

bool& requires_cut_classes() {
  thread_local bool required = false;
  return required;
}

at::Tensor cross_entropy_loss(const at::Tensor& logits, const at::Tensor& target,
                              const std::optional<at::Tensor>& weight, std::int64_t reduction,
                              std::int64_t ignore_index, double label_smoothing) {
  if (!is_usual(logits, target, weight, ignore_index)) {
    return at::native::cross_entropy_loss_symint(logits, target, weight, reduction, ignore_index,
                                                 label_smoothing);
  }
  const std::int64_t class_dim = logits.dim() == 1 ? 0 : 1;
  TESSERA_CHECK(!requires_cut_classes() || has_cut_classes(logits, class_dim) ||
                    layout_of(logits).has_partial() || mesh_of(logits).size() == 1,
                "loss_parallel: logits placed ", layout_of(logits), " given; they must be Shard(",
                class_dim, "), cut along the classes, on some mesh dim: leave the output of the ",
                "last layer as Shard(-1)");
  TESSERA_CHECK(
      label_smoothing >= 0 && label_smoothing <= 1,
      "cross_entropy: label_smoothing must be between 0.0 and 1.0. Got: ", label_smoothing);
  const CrossEntropy loss(logits, weight, reduction, label_smoothing);
  const at::Tensor result = target.is_floating_point() ? loss.of_probabilities(target)
                                                       : loss.of_classes(target, ignore_index);
  return result.to(logits.scalar_type());
}

}  // namespace tessera::detail
