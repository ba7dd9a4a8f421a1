#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tessera/comm/world.h"
#include "tessera/layout/layout.h"

namespace at {
class Tensor;
}

namespace tessera {

/// How a redistribution of local tensors is carried out.
struct RedistributeLocalOptions {
  /// Return before the last step with traffic is complete. The result has its sizes and dtype; its
  /// first use by an operation, or `wait`, waits for the rest, and until then `local` must not be
  /// changed. Steps before the last one, and all but the last of the rounds that a staging budget
  /// asks for, are complete on return, and so is the comparison of what the ranks call where that
  /// takes an exchange of its own: with all engines but threads, and there with several steps among
  /// different ranks.
  bool async_op = false;
  /// The most bytes of message buffers a rank may use; see `PlanOptions::staging_budget`.
  std::int64_t staging_budget = std::numeric_limits<std::int64_t>::max();
};

/// Returns this rank's part of a tensor in layout `to`, given its part in layout `from`.
///
/// All ranks of both meshes must call it with the same layouts and dtype; it follows
/// `plan_redistribute(from, to)`. `local` may be strided. The result is contiguous and new, or `local`
/// itself when nothing changes. A rank outside of `from` passes an empty tensor, of which the dtype
/// and the device count; a rank outside of `to` gets such a one; one outside of both gets back what
/// it passed, at once. Values are moved bit for bit; contributions
/// are reduced in the same order everywhere, so that copies of the result are equal bit by bit.
///
/// Not differentiable: see `redistribute` for tensors that know their layout.
///
/// All ranks that take part agree on the layouts, the dtype and the staging budget before the first
/// byte moves (unless `WorldOptions::check` is off): those along whose mesh dims something changes.
///
/// Throws `InvalidArgument` when `local` has not the shape that `from` gives this rank, is undefined,
/// distributed, sparse or quantized, and as `plan_redistribute` does; then the others get a
/// `CommError` that says the same. Throws `CommError` when the ranks disagree or one of them fails.
[[nodiscard]] at::Tensor redistribute_local(const at::Tensor& local, const Layout& from,
                                            const Layout& to,
                                            const RedistributeLocalOptions& options = {});
/// The same in a given world.
[[nodiscard]] at::Tensor redistribute_local(const at::Tensor& local, const Layout& from,
                                            const Layout& to, const World& world,
                                            const RedistributeLocalOptions& options = {});

/// Where a tensor is, and where it goes.
struct LayoutChange {
  Layout from;
  Layout to;

  bool operator==(const LayoutChange&) const = default;
};

/// Returns what `redistribute_local` does for each of several tensors, of any shapes and dtypes, with
/// one message from a rank to another for all of them where that is cheaper; see
/// `plan_redistribute_all`.
///
/// All ranks of all meshes must call it with the same changes and dtypes, in the same order. What
/// needs nothing is given back as it is. With `async_op` all results that were sent together arrive
/// together; the staging budget is for all of them. A batch counts as one `all_to_all_single`.
///
/// Throws as `redistribute_local` does, naming the tensor by its place in the list, and
/// `InvalidArgument` unless there is one change for each tensor.
[[nodiscard]] std::vector<at::Tensor> redistribute_local_all(
    std::span<const at::Tensor> locals, std::span<const LayoutChange> changes,
    const RedistributeLocalOptions& options = {});
[[nodiscard]] std::vector<at::Tensor> redistribute_local_all(
    std::span<const at::Tensor> locals, std::span<const LayoutChange> changes, const World& world,
    const RedistributeLocalOptions& options = {});

}  // namespace tessera
