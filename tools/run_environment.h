#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::tools {

/// What is different for the ranks, or by job.
struct RankEnvironment {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::uint16_t master_port = 0;
  /// Where the rank may say why it fails.
  std::string error_file;
  /// Where ranks may meet instead of at the port: a file that does not exist yet.
  std::string rendezvous_file;
};

/// Returns our own environment with torchrun's variables for one rank, as `NAME=value`.
[[nodiscard]] std::vector<std::string> make_environment(const RankEnvironment& rank);

}  // namespace tessera::tools
