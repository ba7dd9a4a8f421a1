#pragma once

namespace tessera {

/// While alive, plain tensors that operations of the calling rank mix with DTensors count as replicated:
/// masks, positions and other constants that are equal on all ranks, which nobody checks. Without it they
/// are an error, unless they have one element.
///
///     const ImplicitReplication guard;
///     const auto y = torch::where(mask, x, zero);  // x is a DTensor, the others are not.
///
/// A plain tensor that would need a gradient, or that is written, stays an error: make it a DTensor with
/// `distribute_tensor` or `from_local`. Guards nest.
class ImplicitReplication {
 public:
  ImplicitReplication();
  ~ImplicitReplication();
  ImplicitReplication(const ImplicitReplication&) = delete;
  ImplicitReplication& operator=(const ImplicitReplication&) = delete;

  /// Whether the calling rank has such a guard.
  [[nodiscard]] static bool is_enabled();

 private:
  bool previous_;
};

}  // namespace tessera
