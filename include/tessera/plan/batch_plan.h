#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/plan/redistribute_plan.h"

namespace tessera {

/// One of several tensors that are redistributed together.
struct BatchItem {
  Layout from;
  Layout to;
  /// Bytes per element.
  std::int64_t element_size = 4;
};

/// The messages of a batch are padded to multiples of this many bytes, so that values of every dtype
/// may follow.
inline constexpr std::int64_t kBatchAlignment = 16;

/// Some tensors that travel together: whatever one rank has for another goes in one message.
struct Batch {
  /// Which tensors these are.
  std::vector<std::size_t> items;
  /// How each of them moves: one direct exchange, in one round.
  std::vector<Step> steps;
  /// No rank needs more for its messages.
  std::int64_t staging_bytes = 0;

  /// Returns the ranks that must take part together with `rank`, ascending: those along the mesh dims
  /// in which any of the tensors moves when all are on one mesh, otherwise those of all meshes.
  /// Nobody when `rank` itself is in none of them.
  [[nodiscard]] std::vector<std::int64_t> ranks_with(std::int64_t rank) const;
};

/// How several tensors get from layout to layout: which of them travel together.
struct BatchPlan {
  /// One after the other; a staging budget may ask for more than one.
  std::vector<Batch> batches;
  /// The tensors that follow a plan of their own, `plan_redistribute`'s.
  std::vector<std::size_t> alone;
};

/// Returns which of several tensors travel together, so that a hundred small ones cost the messages
/// of one.
///
/// A batch is one round, so every tensor in it moves by its direct exchange, whatever number of steps
/// its own plan has. A tensor goes alone when nothing of it moves between ranks; when its own plan
/// costs less than its bytes in the batch, which already paid for the messages (a large reduction to
/// all ranks, for which a chain of collectives moves less); when it does not fit the staging budget
/// but in rounds; and when no other would be with it.
///
/// Pure, as `plan_redistribute`: all ranks find the same. `options.element_size` is not looked at.
/// Throws `InvalidArgument` as `plan_redistribute` does, and names the tensor.
[[nodiscard]] BatchPlan plan_redistribute_all(std::span<const BatchItem> items,
                                              const PlanOptions& options = {});

}  // namespace tessera
