#include "tessera/plan/rank_plan.h"

#include <algorithm>

#include "tessera/plan/estimate.h"
#include "tessera/plan/roles.h"

namespace tessera::detail {
namespace {

bool is_native(StepKind kind) {
  return kind == StepKind::all_gather || kind == StepKind::reduce_scatter ||
         kind == StepKind::all_reduce;
}

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

/// Counts, in elements, what a native collective moves: the pairwise algorithms, which are optimal
/// in bytes.
Traffic native_traffic(const Step& step, std::int64_t in, std::int64_t out) {
  std::int64_t n = 1;
  for (const auto dim : step.mesh_dims) n *= step.from.mesh().size(dim);
  Traffic traffic = step.worst;
  switch (step.kind) {
    case StepKind::all_gather:
      traffic.received_bytes = out - in;
      traffic.sent_bytes = out - in;
      traffic.packed_bytes = step.worst.packed_bytes > 0 ? out : 0;
      break;
    case StepKind::reduce_scatter:
      traffic.received_bytes = (n - 1) * out;
      traffic.sent_bytes = in - out;
      traffic.packed_bytes = step.worst.packed_bytes > 0 ? in : 0;
      break;
    default:  // all_reduce: a reduce_scatter of equal chunks, gathered again.
      traffic.received_bytes = 2 * (in - in / n);
      traffic.sent_bytes = 2 * (in - in / n);
  }
  return traffic;
}

/// Counts, in elements, the messages to and from others; `packed_bytes` is one round's buffers.
Traffic message_traffic(const RankStep& own, std::int64_t rank) {
  Traffic traffic;
  std::int64_t in = 0;
  std::int64_t out = 0;
  const auto piece = [&](const Message& message) {
    return message.numel / own.rounds + (message.numel % own.rounds != 0 ? 1 : 0);
  };
  for (const auto& message : own.receives) {
    if (message.peer == rank) continue;
    traffic.received_bytes += message.numel;
    traffic.packed_bytes += piece(message);
    ++in;
  }
  for (const auto& message : own.sends) {
    if (message.peer == rank) continue;
    traffic.sent_bytes += message.numel;
    traffic.packed_bytes += piece(message);
    ++out;
  }
  traffic.messages = std::max(in, out) * own.rounds;
  return traffic;
}

}  // namespace

RankPlan make_rank_plan(const Layout& from, const Layout& to, const std::vector<Step>& steps,
                        const PlanOptions& options, std::int64_t rank) {
  RankPlan plan;
  const std::int64_t input = held_elements(from, rank);
  std::int64_t peak = std::max(input, held_elements(to, rank));
  std::int64_t staging = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    plan.steps.push_back(own_part(step, rank));
    const std::int64_t in = held_elements(step.from, rank);
    const std::int64_t out = held_elements(step.to, rank);
    const Traffic moved = is_native(step.kind) ? native_traffic(step, in, out)
                                               : message_traffic(plan.steps.back(), rank);
    plan.traffic.received_bytes += moved.received_bytes;
    plan.traffic.sent_bytes += moved.sent_bytes;
    plan.traffic.messages += moved.messages;
    plan.traffic.packed_bytes += is_native(step.kind) || step.is_local()
                                     ? moved.packed_bytes
                                     : moved.received_bytes + moved.sent_bytes;
    staging = std::max(staging, moved.packed_bytes);
    peak = std::max(peak, (i > 0 ? input : 0) + in + out + moved.packed_bytes);
  }
  for (auto* count : {&plan.traffic.received_bytes, &plan.traffic.sent_bytes,
                      &plan.traffic.packed_bytes, &staging, &peak}) {
    *count *= options.element_size;
  }
  plan.staging_bytes = staging;
  plan.peak_bytes = peak;
  if (!steps.empty()) {
    plan.bound_bytes = missing_elements(Roles(from, to), rank) * options.element_size;
  }
  return plan;
}

}  // namespace tessera::detail
