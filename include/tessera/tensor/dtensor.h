#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/layout.h"
#include "tessera/layout/placement.h"

namespace tessera {

/// \file
/// A DTensor is an `at::Tensor` with global sizes whose elements are spread over a mesh: every rank
/// holds a *local* tensor, and a `Layout` says which part of the whole that is. Operations, modules,
/// optimizers and autograd of libtorch work on it as on any other tensor; all ranks of the mesh must
/// call them in the same order.
///
/// Ranks outside of a mesh may hold its DTensors too: their local tensors are empty, and they skip
/// the traffic.
///
/// Asking a DTensor for its memory (`data_ptr`) throws: take `to_local(x)` or `full_tensor(x)`.

/// True for tensors made by the functions here, or by operations on such tensors.
[[nodiscard]] bool is_dtensor(const at::Tensor& tensor);

/// What a DTensor is. These throw `InvalidArgument` for a plain or undefined tensor.
[[nodiscard]] const Layout& layout_of(const at::Tensor& tensor);
[[nodiscard]] const Placements& placements_of(const at::Tensor& tensor);
[[nodiscard]] const DeviceMesh& mesh_of(const at::Tensor& tensor);

struct DistributeOptions {
  /// The rank whose values are taken, by its place in the mesh's row-major order. Nothing means that
  /// all ranks pass equal values already: each takes its part, and nothing is communicated.
  std::optional<std::int64_t> src_data_rank = 0;
};

/// Returns `tensor`, whose shape and dtype must be the same on all ranks, as a DTensor.
///
/// For `Partial` the values become contributions whose reduction they are. The result is a leaf that
/// requires gradients if `tensor` does. A DTensor that is placed so already is returned as it is.
///
/// Throws `InvalidArgument` unless there is one placement per mesh dim and every shard dim is within
/// the shape; for a tensor with history (distribute the leaf, or use `from_local` and
/// `redistribute`); for a DTensor that is placed otherwise (`redistribute` it instead); for a tensor
/// on another kind of device than the mesh; for a source outside of the mesh.
[[nodiscard]] at::Tensor distribute_tensor(const at::Tensor& tensor, const DeviceMesh& mesh,
                                           const Placements& placements,
                                           const DistributeOptions& options = {});

struct FromLocalOptions {
  /// Compare shapes and dtypes over the mesh before anything else, and give replicated parts the
  /// values of the first rank along their mesh dims.
  bool run_check = false;
  /// The global shape. Without it, and with a sharded mesh dim of more than one rank, the ranks tell
  /// each other their local sizes (one small `all_gather_into_tensor`).
  std::optional<std::vector<std::int64_t>> shape = {};
  /// How the gradient of the DTensor is placed when it comes back as the gradient of the local
  /// tensor: S where the DTensor is, R, P(sum) or P(avg) elsewhere. Without it: like the DTensor, and
  /// Replicate where that is Partial.
  std::optional<Placements> grad_placements = {};
};

/// Returns the DTensor whose local part on this rank is `local`, without copying it. Differentiable,
/// twice.
///
/// Throws `InvalidArgument` on all ranks unless the local shapes are what the placements give to a
/// global shape, cut as `chunk_extent` says; with `shape` and no `run_check`, on the rank whose part
/// does not fit. Also for a DTensor, for `grad_placements` that cannot be true, and as
/// `distribute_tensor` for placements and devices.
[[nodiscard]] at::Tensor from_local(const at::Tensor& local, const DeviceMesh& mesh,
                                    const Placements& placements,
                                    const FromLocalOptions& options = {});

struct ToLocalOptions {
  /// How the gradient that comes back for the local tensor is placed: S where the DTensor is, for it
  /// is as large as the part, and R, P(sum) or P(avg) elsewhere. Without it: like the DTensor, and
  /// Replicate where that is Partial.
  std::optional<Placements> grad_placements = {};
};

/// Returns this rank's part, which shares the DTensor's memory: a plain tensor. After an async
/// redistribution it may still be on its way, and is waited for when first used. Differentiable,
/// twice. Throws `InvalidArgument` for `grad_placements` that cannot be true.
[[nodiscard]] at::Tensor to_local(const at::Tensor& tensor, const ToLocalOptions& options = {});

/// Returns the whole tensor on every rank of the mesh: a plain tensor, an empty one on ranks outside
/// of it. Differentiable, twice; the options are those of `to_local` on the replicated tensor.
[[nodiscard]] at::Tensor full_tensor(const at::Tensor& tensor, const ToLocalOptions& options = {});

struct RedistributeOptions {
  /// Return at once; the values come when the result is first used.
  bool async_op = false;
  /// The dtype that is sent, and that the result has.
  std::optional<at::ScalarType> forward_dtype = {};
  /// The dtype in which the gradient is sent. The gradient itself has the source's dtype.
  std::optional<at::ScalarType> backward_dtype = {};
};

/// Returns the same tensor placed otherwise, on the same mesh or on another one. Differentiable,
/// twice: the gradient goes back to the source's layout, with Replicate where that is Partial.
///
/// Throws `InvalidArgument` for a plain tensor, for a number of placements that is not the mesh's, a
/// shard dim outside of the shape, a mesh of another world or device, and between Partial of ops
/// that do not mix.
[[nodiscard]] at::Tensor redistribute(const at::Tensor& tensor, const Placements& placements,
                                      const RedistributeOptions& options = {});
[[nodiscard]] at::Tensor redistribute(const at::Tensor& tensor, const DeviceMesh& mesh,
                                      const Placements& placements,
                                      const RedistributeOptions& options = {});

/// Returns what `redistribute` does for each of several tensors, of any shapes and dtypes, but with one
/// message from one rank to another for all of them: a hundred small parameters cost the messages of
/// one. All ranks must pass the same tensors in the same order.
///
///     auto sharded = redistribute_all(parameters, {{Shard(0)}});
///
/// `placements`, and `meshes` where they are given, have one entry per tensor or one for all. Tensors
/// that are placed so already are returned as they are. Which tensors go together is said by
/// `plan_redistribute_all`; a large reduction to all ranks, for one, goes by itself.
///
/// Differentiable, twice: the gradients go back together too, as soon as those of all results that
/// the loss depends on are there. With `async_op` the results arrive together.
///
/// Throws `InvalidArgument` as `redistribute` does, naming the tensor by its place in the list; for
/// another number of placements or meshes; and for tensors of different worlds.
[[nodiscard]] std::vector<at::Tensor> redistribute_all(const std::vector<at::Tensor>& tensors,
                                                       const std::vector<Placements>& placements,
                                                       const RedistributeOptions& options = {});
[[nodiscard]] std::vector<at::Tensor> redistribute_all(const std::vector<at::Tensor>& tensors,
                                                       const std::vector<DeviceMesh>& meshes,
                                                       const std::vector<Placements>& placements,
                                                       const RedistributeOptions& options = {});

/// Returns `DTensor f32[8,8][S(0),R] on [dp=2, tp=2], rank 1 holds [4,8]:` and the local values.
[[nodiscard]] std::string to_string(const at::Tensor& tensor);

}  // namespace tessera
