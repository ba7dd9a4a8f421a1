#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "run_descriptor.h"

namespace tessera::tools {

/// Returns `what: why`, where `why` is the system's text for `error`.
[[nodiscard]] std::string system_text(const std::string& what, int error);

/// Throws `Error` with that text for `errno` if `failed`.
void check_system(bool failed, const char* what);

/// Returns the ends for reading and writing of a pipe that is closed by `exec`.
[[nodiscard]] std::pair<Descriptor, Descriptor> make_pipe();

/// A TCP port that nobody else gets while this lives; nothing listens on it.
class HeldPort {
 public:
  /// A free one.
  HeldPort();

  [[nodiscard]] std::uint16_t number() const { return number_; }

 private:
  Descriptor socket_;
  std::uint16_t number_ = 0;
};

/// A private folder that is removed in the end, with what is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tessera::tools
