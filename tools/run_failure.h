#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::tools {

/// What a rank's own `tessera::launch` wrote about its failure.
struct FailureReport {
  /// Since the epoch.
  std::int64_t nanoseconds = 0;
  /// True when it failed because another rank did: by a `CommError`.
  bool is_consequence = false;
};

/// Returns what stands in a file that `tessera::launch` wrote to TORCHELASTIC_ERROR_FILE; nothing
/// when there is none, or somebody else's.
[[nodiscard]] std::optional<FailureReport> read_failure_report(const std::string& path);

}  // namespace tessera::tools
