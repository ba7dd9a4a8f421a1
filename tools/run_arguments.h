#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::tools {

/// What tessera_run is asked to do.
struct RunArguments {
  bool help = false;
  std::int64_t processes = 1;
  /// Where the output is kept too; nowhere when empty.
  std::string log_dir;
  /// How long the ranks may run.
  std::optional<std::chrono::milliseconds> timeout;
  /// How long ranks get to end by themselves after another failed, and again after SIGTERM.
  std::chrono::milliseconds grace{2000};
  /// A free one is chosen when unset.
  std::optional<std::uint16_t> master_port;
  /// The program and its arguments.
  std::vector<std::string> command;
};

/// Reads the command line. Throws `InvalidArgument` that names the option when it cannot be meant.
[[nodiscard]] RunArguments parse_run_arguments(int argc, const char* const* argv);

/// The text of `--help`.
[[nodiscard]] const char* run_usage();

}  // namespace tessera::tools
