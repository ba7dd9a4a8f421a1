#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/layout/mesh_shape.h>

namespace gpt {

/// What the demo was asked for.
struct DemoArguments {
  bool help = false;
  bool ascii = false;
  std::optional<tessera::MeshShape> mesh;
  std::optional<std::string> style;
  std::int64_t steps = 20;
  bool is_double = false;
  /// What is left for `tessera::launch`: `--ranks`, `--engine`, `--timeout`.
  std::vector<std::string> launch;
};

/// What `--help` prints.
[[nodiscard]] std::string demo_usage();

/// Reads a command line. Throws `tessera::InvalidArgument` for what it does not know, and for a mesh,
/// a style or a number of ranks that do not go together.
[[nodiscard]] DemoArguments parse_demo_arguments(int argc, char** argv);

/// The mesh for so many ranks where none is given. A style of one dim takes all of them along it;
/// otherwise it is `dp=N/2,tp=2` for even numbers, and `dp=N` for odd ones.
[[nodiscard]] tessera::MeshShape default_mesh(std::int64_t ranks,
                                              const std::optional<std::string>& style);

/// The style for a mesh where none is given. Throws `tessera::InvalidArgument` for mesh dims that no
/// style has.
[[nodiscard]] std::string default_style(const tessera::MeshShape& mesh);

}  // namespace gpt
