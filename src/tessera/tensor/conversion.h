#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/layout.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::detail {

class DTensorMeta;

/// Returns the layout of a tensor of `shape`. Throws `InvalidArgument` that names `function` unless
/// there is one placement per mesh dim and every shard dim is within the shape.
[[nodiscard]] Layout checked_layout(const char* function, const DeviceMesh& mesh,
                                    const Placements& placements, const Shape& shape);

/// Returns the layout that the gradient of a tensor has unless told otherwise: that of the tensor,
/// and Replicate where it is Partial.
[[nodiscard]] Layout gradient_layout(const Layout& layout);

/// Returns the same tensor as a new object without history; one that is on its way stays so.
[[nodiscard]] at::Tensor without_history(const at::Tensor& tensor);

/// Throws `InvalidArgument` when the tensor is on another kind of device than the mesh.
void check_device(const char* function, const at::Tensor& tensor, const DeviceMesh& mesh);

/// Throws `InvalidArgument` unless a DTensor can go to a mesh: of the same world and kind of device.
void check_destination(const char* function, const DTensorMeta& meta, const DeviceMesh& mesh);

// The conversions with autograd, on arguments that were checked.

/// `values`, where defined, are what the DTensor holds instead of those of `local`.
[[nodiscard]] at::Tensor wrap_local(const at::Tensor& local, const DeviceMesh& mesh,
                                    const Layout& layout, const Layout& gradient,
                                    const at::Tensor& values = {});
[[nodiscard]] at::Tensor unwrap_local(const at::Tensor& tensor, const Layout& gradient);
[[nodiscard]] at::Tensor move(const at::Tensor& tensor, const DeviceMesh& mesh,
                              const Layout& layout, const RedistributeOptions& options = {});

/// Where a tensor goes.
struct Destination {
  DeviceMesh mesh;
  Layout layout;
};

/// Moves several tensors of one world at once; `to` has one entry for each.
[[nodiscard]] std::vector<at::Tensor> move_all(const std::vector<at::Tensor>& tensors,
                                               std::span<const Destination> to,
                                               const RedistributeOptions& options = {});

}  // namespace tessera::detail
