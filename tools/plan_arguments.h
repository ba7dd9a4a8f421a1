#pragma once

#include <cstdint>
#include <optional>

#include "tessera/layout/layout.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::tools {

/// When to paint: on terminals only, or regardless of what the output is.
enum class ColorMode : std::uint8_t { automatic, always, never };

/// What tessera_plan is asked to do.
struct PlanArguments {
  enum class Action : std::uint8_t { help, tour, draw, plan };

  Action action = Action::help;
  /// Set when drawing or planning.
  std::optional<Layout> from;
  /// Set when planning.
  std::optional<Layout> to;
  PlanOptions options;
  /// The rank whose messages are shown.
  std::optional<std::int64_t> rank;
  bool json = false;
  bool ascii = false;
  ColorMode color = ColorMode::automatic;
};

/// Reads the command line. Throws `InvalidArgument` that names the option when it cannot be meant.
[[nodiscard]] PlanArguments parse_plan_arguments(int argc, const char* const* argv);

/// The text of `--help`.
[[nodiscard]] const char* plan_usage();

}  // namespace tessera::tools
