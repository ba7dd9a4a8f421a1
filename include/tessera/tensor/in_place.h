#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/placement.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {

/// \file
/// Existing tensors that become DTensors, or DTensors placed otherwise, in place: whoever holds the
/// tensor object sees it. For a parameter these are the module's member, the module's registry, and an
/// optimizer that was made before. `requires_grad`, being a leaf, and hooks stay as they are.
///
/// What shares memory with the tensor but is another object (its views, `detach()`) is not changed,
/// and shares nothing with it afterwards. A graph that was recorded before cannot be gone back
/// through any more: libtorch says that the tensor was modified by an in-place operation.

/// Makes `tensor` what `value` is: plain or distributed, its values and its layout. Both share memory
/// afterwards. Nothing is communicated.
///
/// The gradient of `tensor`, if it has one, becomes that of `value`.
///
/// Throws `InvalidArgument` when one is undefined, has history, or is a view with hooks; when sizes, dtypes, kinds
/// of device or inference mode differ; and when `tensor` has a gradient and `value` has none, which
/// would have to be dropped.
void become(const at::Tensor& tensor, const at::Tensor& value);

/// `distribute_tensor` in place, of the gradient too if there is one. A DTensor that is placed so
/// already stays as it is.
///
/// Throws `InvalidArgument` as `distribute_tensor` and `become` do.
void distribute_in_place(const at::Tensor& tensor, const DeviceMesh& mesh,
                         const Placements& placements, const DistributeOptions& options = {});

/// `redistribute` in place, of the gradient too if there is one: that of a tensor placed `Partial`
/// is placed `Replicate`.
///
/// Throws `InvalidArgument` as `redistribute` and `become` do.
void redistribute_in_place(const at::Tensor& tensor, const Placements& placements);
void redistribute_in_place(const at::Tensor& tensor, const DeviceMesh& mesh,
                           const Placements& placements);

}  // namespace tessera
