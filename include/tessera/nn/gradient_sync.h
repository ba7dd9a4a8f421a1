#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// How gradients are brought to their parameters' layouts.
struct GradientSyncOptions {
  /// Gradients that are ready are collected until they have so many local bytes. Then they are sent
  /// together, while the backward pass goes on. One that would make them a quarter more than that
  /// begins the next bucket, so that a large one goes alone. At least 1.
  std::int64_t bucket_bytes = 25'000'000;
};

/// From now on, every backward pass leaves the gradients of these parameters in the parameters' own
/// layouts.
///
/// The gradient of a parameter that meets a sharded batch is a sum of all ranks' contributions
/// (`Partial`). Left alone, it is reduced when the optimizer first uses it, and that one parameter at
/// a time. This reduces many of them in one message, and begins during the backward pass: an
/// `all_reduce_coalesced` per bucket where parameters are replicated, a
/// `reduce_scatter_tensor_coalesced` where they are sharded. What the sum is of does not change: the
/// loss is that of the whole batch, so a mean over a batch that is cut unevenly comes out right.
///
/// Gradients that are placed like their parameter already, those of plain parameters, and those that
/// are to be differentiated again (`create_graph`) are left to the operations that use them. Calling
/// it again for a parameter replaces the options. All ranks must do so alike.
///
/// Throws `InvalidArgument` for a parameter that is undefined or no leaf, and for a `bucket_bytes`
/// below 1.
void sync_gradients(const std::vector<at::Tensor>& parameters,
                    const GradientSyncOptions& options = {});

/// While alive, backward passes of the calling rank leave gradients as they come: contributions that
/// add up over several passes. The first pass after it reduces the sum, so that a step over several
/// small batches costs the messages of one.
class NoGradientSync {
 public:
  NoGradientSync();
  ~NoGradientSync();
  NoGradientSync(const NoGradientSync&) = delete;
  NoGradientSync& operator=(const NoGradientSync&) = delete;

  /// Whether one is alive on the calling rank.
  [[nodiscard]] static bool is_enabled();

 private:
  bool previous_;
};

}  // namespace tessera::nn
