#pragma once

#include <optional>

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigset_t is not in <csignal>.

#include "run_descriptor.h"

namespace tessera::tools {

/// Turns the signals that concern us (a child ended, we are asked to stop) into something that can
/// be read, as long as it lives. Children must unblock them.
class SignalReader {
 public:
  SignalReader();
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  /// Readable when there is a signal.
  [[nodiscard]] int descriptor() const { return descriptor_.number(); }
  /// The next signal, or nothing.
  [[nodiscard]] std::optional<int> read();

 private:
  sigset_t previous_{};
  Descriptor descriptor_;
};

}  // namespace tessera::tools
