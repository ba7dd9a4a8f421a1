#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/TensorOptions.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/placement.h"

namespace tessera {

/// \file
/// New DTensors of a global shape. Every rank makes its own part; nothing is communicated.
///
/// No placements mean Replicate along all mesh dims. Of the options, dtype and `requires_grad`
/// count; the device is the mesh's. For a `Partial` mesh dim the contributions reduce to the values
/// asked for. All throw `InvalidArgument` unless there is one placement per mesh dim, and for shard
/// dims outside of the shape.

[[nodiscard]] at::Tensor zeros(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                               const Placements& placements = {},
                               const at::TensorOptions& options = {});
[[nodiscard]] at::Tensor ones(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                              const Placements& placements = {},
                              const at::TensorOptions& options = {});
/// Uninitialised memory.
[[nodiscard]] at::Tensor empty(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                               const Placements& placements = {},
                               const at::TensorOptions& options = {});
[[nodiscard]] at::Tensor full(const std::vector<std::int64_t>& sizes, const at::Scalar& value,
                              const DeviceMesh& mesh, const Placements& placements = {},
                              const at::TensorOptions& options = {});

/// `start`, `start + step`, ... as long as they are below `end` (above it for a negative step); the
/// dtype is int64 for whole numbers unless the options say otherwise.
[[nodiscard]] at::Tensor arange(const at::Scalar& start, const at::Scalar& end,
                                const at::Scalar& step, const DeviceMesh& mesh,
                                const Placements& placements = {},
                                const at::TensorOptions& options = {});
[[nodiscard]] at::Tensor arange(const at::Scalar& end, const DeviceMesh& mesh,
                                const Placements& placements = {},
                                const at::TensorOptions& options = {});

/// Random numbers, evenly distributed in [0, 1) and normally distributed; see `manual_seed`: the
/// values depend on neither mesh nor placements.
[[nodiscard]] at::Tensor rand(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                              const Placements& placements = {},
                              const at::TensorOptions& options = {});
[[nodiscard]] at::Tensor randn(const std::vector<std::int64_t>& sizes, const DeviceMesh& mesh,
                               const Placements& placements = {},
                               const at::TensorOptions& options = {});

}  // namespace tessera
