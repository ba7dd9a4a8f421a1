#pragma once

namespace tessera::detail {

/// What a host language wants done around a wait: Python's lock must not be held by a rank that
/// waits for another thread of the process.
struct WaitingHooks {
  /// Called before a thread waits; what it returns is passed to `end`. Null when there is nothing
  /// to end.
  void* (*begin)();
  void (*end)(void* state);
};

/// Sets the hooks, which must live for ever. Called once, while the program is loaded.
void set_waiting_hooks(const WaitingHooks* hooks);

/// Brackets what may wait for other ranks. No lock of ours may be held where it begins or ends.
class Waiting {
 public:
  Waiting();
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void* state_ = nullptr;
};

}  // namespace tessera::detail
