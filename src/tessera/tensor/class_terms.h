#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::detail {

/// What a cross entropy is made of, one element per sample: DTensors with the shape of the target.
struct ClassTerms {
  /// The logarithm of the sum of all exponentiated logits.
  at::Tensor log_sum_exp;
  /// That minus the target's logit.
  at::Tensor loss;
};

/// Returns the terms of logits whose classes are along `class_dim`, differentiable by the logits. Every
/// element of `target`, a DTensor without the class dim, must be a class.
///
/// Where classes are cut, two small all_reduces over the ranks that share samples: the greatest
/// logits, then the sums. The backward pass communicates nothing, and cannot be differentiated again.
[[nodiscard]] ClassTerms class_terms(const at::Tensor& logits, const at::Tensor& target,
                                     std::int64_t class_dim);

/// Returns `ClassTerms::log_sum_exp` alone.
[[nodiscard]] at::Tensor class_log_sum_exp(const at::Tensor& logits, std::int64_t class_dim);

/// Returns whether ranks have different classes.
[[nodiscard]] bool has_cut_classes(const at::Tensor& logits, std::int64_t class_dim);

/// Returns the logits in a layout that `class_terms` can work in: every rank has one run of classes. Sums that are still to be done are
/// done such that each rank gets some classes.
[[nodiscard]] at::Tensor with_simple_classes(const at::Tensor& logits, std::int64_t class_dim);

}  // namespace tessera::detail
