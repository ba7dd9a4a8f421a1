#pragma once

#include <string>
#include <vector>

#include "tessera/comm/world.h"
#include "training.h"

namespace tessera::test {

/// A mesh and a style on it.
struct GptCase {
  std::string mesh;
  std::string style;
};

/// All that the world's ranks can form: for four, `dp=4`, `tp=4` and `dp=2,tp=2` in every style.
[[nodiscard]] std::vector<GptCase> gpt_cases(std::int64_t ranks);

/// A small network, whose batches do not divide evenly.
[[nodiscard]] gpt::TrainingOptions small_gpt(const gpt::Text& text);

/// Trains in every style and expects the losses of one rank.
void check_gpt(World& world, torch::Dtype dtype, std::int64_t steps);

}  // namespace tessera::test
