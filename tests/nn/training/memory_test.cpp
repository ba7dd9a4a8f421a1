#include <gtest/gtest.h>

#include "nn/training/memory_count.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/world.h"
#include "training.h"

namespace tessera {
namespace {

std::int64_t local_bytes(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(to_local(tensor.detach()).nbytes());
}

/// What a rank keeps between two steps: parameters, gradients, and the optimizer's two averages.
std::int64_t kept_bytes(gpt::Training& training) {
  std::int64_t bytes = 0;
  for (const auto& parameter : training.model()->parameters()) {
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *training.optimizer().state().at(parameter.unsafeGetTensorImpl()));
    for (const auto& tensor : {parameter, parameter.grad(), state.exp_avg(), state.exp_avg_sq()}) {
      bytes += local_bytes(tensor);
    }
  }
  return bytes;
}

/// A network whose activations are small beside its parameters.
gpt::TrainingOptions wide_gpt(const gpt::Text& text, std::int64_t rows) {
  gpt::TrainingOptions options;
  options.config = {.vocabulary = text.vocabulary(),
                    .context = 2,
                    .width = 128,
                    .heads = 4,
                    .layers = 6,
                    .dropout = 0.1};
  options.rows = rows;
  options.length = 2;
  return options;
}

void check_memory(const World& world, const std::string& mesh_text, const std::string& style) {
  SCOPED_TRACE(mesh_text + " " + style);
  const gpt::Text text(gpt::story());
  const DeviceMesh mesh("cpu", MeshShape::parse(mesh_text));
  gpt::Training training(mesh, gpt::parse_style(style), text, wide_gpt(text, world.size()));
  std::int64_t whole = 0;
  for (const auto& parameter : training.model()->parameters()) {
    whole += static_cast<std::int64_t>(parameter.nbytes());
  }
  training.step();
  const std::int64_t share = 4 * whole / world.size();
  const std::int64_t kept = kept_bytes(training);
  EXPECT_LE(static_cast<double>(kept), 1.15 * static_cast<double>(share));
}

TEST(FullyShardedMemoryTest, KeepsAnEvenShare) {
  run_ranks(4, [](World& world) {
    check_memory(world, "dp=4", "fsdp");
    check_memory(world, "dp=2,tp=2", "fsdp+tp");
  });
  run_ranks(2, [](World& world) { check_memory(world, "dp=2", "fsdp"); });
}

TEST(FullyShardedMemoryTest, CountsWhatOtherStylesTake) {
  run_ranks(2, [](World& world) {
    const gpt::Text text(gpt::story());
    const DeviceMesh mesh("cpu", MeshShape::parse("dp=2"));
    gpt::Training training(mesh, gpt::parse_style("dp"), text, wide_gpt(text, world.size()));
    training.step();
    std::int64_t whole = 0;
    for (const auto& parameter : training.model()->parameters()) {
      whole += static_cast<std::int64_t>(parameter.nbytes());
    }
    EXPECT_EQ(kept_bytes(training), 4 * whole);
    const test::MemoryCount memory;
    training.step();
    EXPECT_GT(memory.peak(), whole / 2);
  });
}

}  // namespace
}  // namespace tessera
