#include "tessera/plan/rank_plan.h"

#include <algorithm>

#include "tessera/base/divide.h"
#include "tessera/plan/estimate.h"
#include "tessera/plan/roles.h"

namespace tessera::detail {
namespace {

RankStep own_part(const Step& step, std::int64_t rank) {
  if (!is_native(step.kind)) return rank_step(step, rank);
  RankStep own;
  const auto position = step.from.mesh().position_of(rank);
  if (!position) return own;
  own.in_shape = step.from.local_shape(*position);
  own.out_shape = step.to.local_shape(*position);
  return own;
}

/// What a rank holds in a layout; nothing outside the mesh.
std::int64_t held_elements(const Layout& layout, std::int64_t rank) {
  const auto position = layout.mesh().position_of(rank);
  return position ? layout.local_numel(*position) : 0;
}

/// What one rank moves in a step, and the buffers that it needs for it at one time.
struct Moved {
  Traffic traffic;
  std::int64_t staging = 0;
};

/// Counts, in elements, what a native collective moves: the pairwise algorithms, which are optimal
/// in bytes.
Moved native_moves(const Step& step, std::int64_t in, std::int64_t out) {
  std::int64_t n = 1;
  for (const auto dim : step.mesh_dims) n *= step.from.mesh().size(dim);
  Traffic traffic;
  traffic.messages = step.worst.messages;
  const bool packs = step.worst.packed_bytes > 0;
  if (step.kind == StepKind::all_gather) {
    traffic.received_bytes = out - in;
    traffic.sent_bytes = out - in;
    traffic.packed_bytes = packs ? out : 0;
  } else if (step.kind == StepKind::reduce_scatter) {
    traffic.received_bytes = (n - 1) * out;
    traffic.sent_bytes = in - out;
    traffic.packed_bytes = packs ? in : 0;
  } else {  // all_reduce: a reduce_scatter of equal chunks, gathered again.
    traffic.received_bytes = 2 * (in - in / n);
    traffic.sent_bytes = traffic.received_bytes;
  }
  return {traffic, traffic.packed_bytes};
}

/// Counts, in elements, the messages to and from others.
Moved message_moves(const RankStep& own, std::int64_t rank) {
  Moved moved;
  std::int64_t in = 0;
  std::int64_t out = 0;
  const auto piece = [&](const Message& message) { return ceil_divide(message.numel, own.rounds); };
  for (const auto& message : own.receives) {
    if (message.peer == rank) continue;
    moved.traffic.received_bytes += message.numel;
    moved.staging += piece(message);
    ++in;
  }
  for (const auto& message : own.sends) {
    if (message.peer == rank) continue;
    moved.traffic.sent_bytes += message.numel;
    moved.staging += piece(message);
    ++out;
  }
  moved.traffic.packed_bytes = moved.traffic.received_bytes + moved.traffic.sent_bytes;
  moved.traffic.messages = std::max(in, out) * own.rounds;
  return moved;
}

void to_bytes(Traffic& traffic, std::int64_t element_size) {
  traffic.received_bytes *= element_size;
  traffic.sent_bytes *= element_size;
  traffic.packed_bytes *= element_size;
}

void add(Traffic& total, const Traffic& step) {
  total.received_bytes += step.received_bytes;
  total.sent_bytes += step.sent_bytes;
  total.packed_bytes += step.packed_bytes;
  total.messages += step.messages;
}

}  // namespace

bool is_native(StepKind kind) {
  return kind == StepKind::all_gather || kind == StepKind::reduce_scatter ||
         kind == StepKind::all_reduce;
}

RankPlan make_rank_plan(const Layout& from, const Layout& to, const std::vector<Step>& steps,
                        const PlanOptions& options, std::int64_t rank) {
  RankPlan plan;
  const std::int64_t element = options.element_size;
  const std::int64_t input = held_elements(from, rank) * element;
  plan.peak_bytes = std::max(input, held_elements(to, rank) * element);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    plan.steps.push_back(own_part(step, rank));
    const std::int64_t in = held_elements(step.from, rank);
    const std::int64_t out = held_elements(step.to, rank);
    Moved moved =
        is_native(step.kind) ? native_moves(step, in, out) : message_moves(plan.steps.back(), rank);
    to_bytes(moved.traffic, element);
    add(plan.traffic, moved.traffic);
    plan.step_traffic.push_back(moved.traffic);
    plan.staging_bytes = std::max(plan.staging_bytes, moved.staging * element);
    // From the second step on, the caller's input is alive besides the step's own.
    const std::int64_t alive = (i > 0 ? input : 0) + (in + out + moved.staging) * element;
    plan.peak_bytes = std::max(plan.peak_bytes, alive);
  }
  if (!steps.empty()) {
    plan.bound_bytes = missing_elements(Roles(from, to), rank) * element;
  }
  return plan;
}

}  // namespace tessera::detail
