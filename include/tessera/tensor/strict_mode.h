#pragma once

namespace tessera {

/// While alive, an operation of the calling rank that would have to redistribute one of its DTensors
/// first throws `InvalidArgument` instead, on all ranks before anything moves. The message names the
/// operation, the argument, both layouts, and the call that would do it explicitly.
///
/// Guards nest; `StrictGuard off(false)` allows implicit redistribution again for its lifetime.
class StrictGuard {
 public:
  explicit StrictGuard(bool enabled = true);
  ~StrictGuard();
  StrictGuard(const StrictGuard&) = delete;
  StrictGuard& operator=(const StrictGuard&) = delete;

  /// Whether the calling rank is in strict mode.
  [[nodiscard]] static bool is_enabled();

 private:
  bool previous_;
};

}  // namespace tessera
