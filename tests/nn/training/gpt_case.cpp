#include "nn/training/gpt_case.h"

#include <gtest/gtest.h>

#include "tessera/comm/device_mesh.h"

namespace tessera::test {

std::vector<GptCase> gpt_cases(std::int64_t ranks) {
  std::vector<GptCase> cases;
  const auto add = [&](const std::string& mesh, std::initializer_list<const char*> styles) {
    for (const auto* style : styles) cases.push_back({mesh, style});
  };
  add("dp=" + std::to_string(ranks), {"dp", "fsdp"});
  add("tp=" + std::to_string(ranks), {"tp", "sp"});
  if (ranks % 2 == 0 && ranks > 2) {
    add("dp=2,tp=" + std::to_string(ranks / 2), {"dp+tp", "dp+sp", "fsdp+tp", "fsdp+sp"});
  }
  if (ranks == 1) add("dp=1,tp=1", {"dp+tp", "dp+sp", "fsdp+tp", "fsdp+sp"});
  return cases;
}

gpt::TrainingOptions small_gpt(const gpt::Text& text) {
  gpt::TrainingOptions options;
  options.config = {.vocabulary = text.vocabulary(),
                    .context = 12,
                    .width = 16,
                    .heads = 4,
                    .layers = 2,
                    .dropout = 0.1};
  options.rows = 5;
  options.length = 12;
  return options;
}

void check_gpt(World& world, torch::Dtype dtype, std::int64_t steps) {
  // The tensors are tiny: several threads per rank would only wait for each other.
  torch::set_num_threads(1);
  const gpt::Text text(gpt::story());
  gpt::TrainingOptions options = small_gpt(text);
  options.dtype = dtype;
  options.steps = steps;
  const DeviceMesh alone("cpu", MeshShape({1}, {"dp"}, {world.rank()}));
  const auto expected = gpt::losses_of(alone, gpt::parse_style("dp"), text, options);
  EXPECT_LT(expected.back(), expected.front()) << "nothing was learned";
  const double tolerance = dtype == torch::kDouble ? 1e-10 : 1e-5;
  for (const auto& [mesh, style] : gpt_cases(world.size())) {
    SCOPED_TRACE(mesh + " " + style);
    const auto losses = gpt::losses_of(DeviceMesh("cpu", MeshShape::parse(mesh)),
                                       gpt::parse_style(style), text, options);
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t step = 0; step < losses.size(); ++step) {
      EXPECT_NEAR(losses[step], expected[step], tolerance) << "step " << step;
    }
  }
}

}  // namespace tessera::test
