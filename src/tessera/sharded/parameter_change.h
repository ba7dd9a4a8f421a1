#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/comm/group.h"
#include "tessera/layout/layout.h"
#include "tessera/sharded/sharding_spec.h"

namespace torch::nn {
class Module;
}

namespace tessera::sharded::detail {

/// A parameter or buffer that is about to become a DTensor.
struct ParameterChange {
  /// Where it is, for messages: `fc1.weight`.
  std::string path;
  at::Tensor tensor;
  DeviceMesh mesh;
  Layout layout;
};

/// Returns the module's own parameter or buffer of that name. Throws `InvalidArgument` that names
/// `function` when there is none, or something else.
[[nodiscard]] at::Tensor own_tensor(const std::string& function, torch::nn::Module& module,
                                    const std::string& name);

/// Returns what becomes of a tensor. Throws `InvalidArgument` that names `function` when it cannot be
/// changed in place, or no DTensor in the group is placed as the spec says.
[[nodiscard]] ParameterChange plan_change(const std::string& function, std::string path,
                                          const at::Tensor& tensor, const ShardingSpec& spec,
                                          const Group& group);

/// The same for a tensor that is to be replicated on a mesh.
[[nodiscard]] ParameterChange plan_replicated(const std::string& function, std::string path,
                                              const at::Tensor& tensor, const DeviceMesh& mesh);

/// Everything about a change that must be the same on all ranks: `fc1.weight float32[4,3] ...`.
[[nodiscard]] std::string describe(const ParameterChange& change);

/// Carries a change out, of the gradient too if there is one. All members of the group call it.
void apply(const ParameterChange& change, std::int64_t src_rank, const Group& group);

}  // namespace tessera::sharded::detail
