#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tessera.h>

#include "styles.h"
#include "terminal.h"
#include "training.h"

namespace gpt {

/// What one run of the demo measured.
struct DemoRun {
  std::vector<double> losses;
  /// Of the same steps on one rank.
  std::vector<double> single_losses;
  /// Of one step, in milliseconds; the median.
  double step_ms = 0;
  double single_step_ms = 0;
  /// What this rank communicated in one step.
  std::vector<tessera::CommRecord> traffic;
  /// The greatest difference of losses that rounding explains.
  double tolerance = 0;
};

// The parts of the demo's output, ready to print.

/// Who trains what, and how it is spread, with pictures.
[[nodiscard]] std::string opening(const Training& training, const tessera::DeviceMesh& mesh,
                                  const Style& style, const TrainingOptions& options,
                                  const tessera::tools::Style& look);
/// A line that overwrites itself on a terminal.
[[nodiscard]] std::string progress(std::int64_t done, std::int64_t steps, const std::string& text,
                                   const tessera::tools::Style& look);
[[nodiscard]] std::string loss_table(const DemoRun& run, const tessera::tools::Style& look);
[[nodiscard]] std::string traffic_table(const DemoRun& run, const tessera::tools::Style& look);
[[nodiscard]] std::string closing(const DemoRun& run, const tessera::DeviceMesh& mesh,
                                  const tessera::tools::Style& look);

/// The greatest difference between the losses of both runs.
[[nodiscard]] double greatest_difference(const DemoRun& run);

}  // namespace gpt
