#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <tessera/tessera.h>

#include "gpt.h"
#include "styles.h"

namespace gpt {

struct TrainingOptions {
  Config config = {};
  torch::Dtype dtype = torch::kFloat;
  std::int64_t steps = 20;
  /// Rows of a batch, and characters of a row.
  std::int64_t rows = 8;
  std::int64_t length = 64;
  double learning_rate = 3e-3;
  std::uint64_t seed = 1;
};

/// A network in training: on a mesh, in a style. All ranks of the mesh must call it alike.
///
/// The values depend on neither mesh nor style: initial values and dropout are drawn by global
/// element (see `tessera::manual_seed`), so losses differ by rounding alone.
class Training {
 public:
  Training(const tessera::DeviceMesh& mesh, const Style& style, const Text& text,
           const TrainingOptions& options);

  /// Trains on the next batch and returns its loss.
  double step();

  [[nodiscard]] const Gpt& model() const { return model_; }
  [[nodiscard]] torch::optim::AdamW& optimizer() { return optimizer_; }

 private:
  tessera::DeviceMesh mesh_;
  const Text* text_;
  TrainingOptions options_;
  std::int64_t step_ = 0;
  Gpt model_;
  torch::optim::AdamW optimizer_;
};

/// Trains and returns the loss of every step. On a mesh of one rank this is what the others must give.
[[nodiscard]] std::vector<double> losses_of(const tessera::DeviceMesh& mesh, const Style& style,
                                            const Text& text, const TrainingOptions& options);

}  // namespace gpt
