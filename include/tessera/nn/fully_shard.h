#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/comm/device_mesh.h"

namespace torch::nn {
class Module;
}

namespace tessera::nn {

/// How `fully_shard` spreads a module.
struct FullyShardOptions {
  /// The mesh dim over which parameters are kept in parts. May be left out of a mesh of one dim.
  std::string mesh_dim = {};
  /// Parameters of fewer elements are replicated: gathering them costs more than they take.
  std::int64_t min_elements = 0;
  /// See `GradientSyncOptions`. Gradients are whole until they are sent, so a large bucket takes
  /// memory. Left out: the bytes of the largest parameter, as a rank sees it while it is gathered.
  std::optional<std::int64_t> bucket_bytes = {};
};

/// Makes a module work on batches that are spread over a mesh, with only a part of each parameter on
/// every rank.
///
///     fully_shard(*model, mesh, {.mesh_dim = "dp"});
///
/// A parameter is cut along its first dim over `mesh_dim`; along the longest other one where another
/// mesh dim cuts that already (`parallelize_module`). An operation that uses it gathers it, computes
/// and drops the whole again; the backward pass does the same, and its gradient is summed and cut
/// like the parameter in one step (`reduce_scatter`), in buckets: see `sync_gradients`. So parameters,
/// gradients and the state of optimizers take a rank's share of the memory, and one operation's
/// parameters on top. Traffic lists the gathering as `gather a parameter, for aten::addmm`.
///
/// Batches are cut over the same mesh dim: `{Shard(0), Replicate()}`. Buffers are replicated. Plain
/// parameters take the values of the mesh's first rank.
///
/// Throws `InvalidArgument` for a mesh dim that does not exist, or is left out of a mesh of several;
/// for a parameter on another mesh, or one that is cut over `mesh_dim` already; and as
/// `sync_gradients` does.
void fully_shard(torch::nn::Module& module, const DeviceMesh& mesh,
                 const FullyShardOptions& options = {});

}  // namespace tessera::nn
