#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

/// What one rank moves in a step, or the most that any rank does.
struct Traffic {
  std::int64_t received_bytes = 0;
  std::int64_t sent_bytes = 0;
  /// Bytes copied into or out of message buffers. Estimates leave out what lies together in memory
  /// anyway.
  std::int64_t packed_bytes = 0;
  /// Messages in or out, whichever are more; a native collective counts its rounds.
  std::int64_t messages = 0;

  bool operator==(const Traffic&) const = default;
};

/// Prices for choosing between plans.
///
/// Whole picoseconds: every rank, on whatever hardware, computes the same costs from the same
/// layouts and so chooses the same plan without asking the others. The defaults describe processes
/// on one host (1 us per message, 5 GB/s); a communication engine brings its own.
struct CostModel {
  /// Starting one step: synchronisation, launch.
  std::int64_t launch_ps = 2'000'000;
  /// One message to or from one peer.
  std::int64_t message_ps = 1'000'000;
  /// One byte in or out (both directions run at once, so the larger counts).
  std::int64_t byte_ps = 200;
  /// One byte packed or unpacked.
  std::int64_t packed_byte_ps = 100;

  bool operator==(const CostModel&) const = default;

  /// Returns launch + messages + max(received, sent) + packed, each at its price. Saturates
  /// instead of overflowing.
  [[nodiscard]] std::int64_t cost_ps(const Traffic& traffic) const;

  [[nodiscard]] std::size_t hash() const;
};

}  // namespace tessera
