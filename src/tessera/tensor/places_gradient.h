#pragma once

#include <torch/csrc/autograd/function_hook.h>

namespace tessera::detail {

/// A hook of a leaf that brings its gradients to where they belong, for example many at once. Until
/// then they stay placed as the backward pass left them: see Note [Gradients of leaves].
class PlacesGradient : public torch::autograd::PostAccumulateGradHook {};

}  // namespace tessera::detail
