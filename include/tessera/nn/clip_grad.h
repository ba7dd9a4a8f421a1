#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/group.h"

namespace tessera::nn {

struct GradNormOptions {
  /// 2, 1, any other p > 0, or infinity. 0 counts the gradients, as libtorch does.
  double norm_type = 2.0;
  /// Throw when the norm is infinite or no number, instead of scaling by it.
  bool error_if_nonfinite = false;
  /// All ranks that call; needed when parameters are on meshes that this rank is not part of.
  std::optional<Group> group = {};
};

/// Returns the norm of all gradients of `parameters` together, as if they were one vector; 0 without
/// any. Every element counts once, however the gradients are placed, and a parameter that is given
/// twice counts once. The same on all ranks.
///
/// Gradients may be DTensors on different meshes, in any layouts, and plain tensors, which count as
/// equal on all ranks. Gradients that are `Partial` are reduced first, to their parameter's layout, and
/// stay so. Apart from that every mesh communicates one number; a mesh where all gradients are
/// replicated nothing. `group` takes one more small reduction.
///
/// Throws `InvalidArgument` for other norms; for a parameter on a mesh that this rank is not part of,
/// unless there is a `group`; with `error_if_nonfinite`, for a norm that is not finite.
[[nodiscard]] double grad_norm(const std::vector<at::Tensor>& parameters,
                               const GradNormOptions& options = {});

/// Scales all gradients by max_norm / (norm + 1e-6) when that is below 1, in place, and returns
/// `grad_norm`: `torch::nn::utils::clip_grad_norm_` for parameters that are placed somehow.
double clip_grad_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                      const GradNormOptions& options = {});

}  // namespace tessera::nn
