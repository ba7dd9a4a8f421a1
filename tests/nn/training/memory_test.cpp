#include <gtest/gtest.h>

#include "nn/training/memory_count.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/world.h"
#include "training.h"

namespace tessera {
namespace {

/// A network whose activations are small beside its parameters, on `ranks` rows of two characters.
gpt::TrainingOptions wide_gpt(const gpt::Text& text, std::int64_t ranks, std::int64_t layers) {
  gpt::TrainingOptions options;
  options.config = {.vocabulary = text.vocabulary(),
                    .context = 2,
                    .width = 128,
                    .heads = 4,
                    .layers = layers,
                    .dropout = 0.1};
  options.rows = ranks;
  options.length = 2;
  return options;
}

/// What a training takes, in bytes.
struct Memory {
  /// All parameters.
  std::int64_t whole = 0;
  /// Those of one layer, a block of the network.
  std::int64_t layer = 0;
  /// What a rank holds between steps, and at most during one: parameters, gradients, the optimizer's
  /// state, what is gathered, what is on its way, and activations.
  std::int64_t kept = 0;
  std::int64_t peak = 0;

  /// A rank's even share of parameters, gradients and the optimizer's two averages.
  [[nodiscard]] std::int64_t share(std::int64_t ranks) const { return 4 * whole / ranks; }
};

/// How a network is spread.
struct Spread {
  std::string mesh;
  std::string style;
  std::int64_t layers = 6;
};

Memory memory_of(const World& world, test::MemoryCount& count, const Spread& spread) {
  const gpt::Text text(gpt::story());
  const DeviceMesh mesh("cpu", MeshShape::parse(spread.mesh));
  const std::int64_t before = count.bytes(world.rank());
  gpt::Training training(mesh, gpt::parse_style(spread.style), text,
                         wide_gpt(text, world.size(), spread.layers));
  Memory memory;
  for (const auto& [name, parameter] : training.model()->named_parameters().pairs()) {
    const auto bytes = static_cast<std::int64_t>(parameter.nbytes());
    memory.whole += bytes;
    if (name.starts_with("blocks.0.")) memory.layer += bytes;
  }
  training.step();  // Makes the optimizer's state, and the plans.
  count.reset_peak(world.rank());
  training.step();
  training.step();
  memory.kept = count.bytes(world.rank()) - before;
  memory.peak = count.peak(world.rank()) - before;
  return memory;
}

void check_memory(std::int64_t ranks, const Spread& spread) {
  SCOPED_TRACE(spread.mesh + " " + spread.style + ", layers: " + std::to_string(spread.layers));
  test::MemoryCount count(ranks);
  std::vector<Memory> all(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](World& world) {
    const test::MemoryCount::Scope scope(count, world.rank());
    all[static_cast<std::size_t>(world.rank())] = memory_of(world, count, spread);
  });
  std::int64_t kept = 0;
  for (const auto& memory : all) {
    const auto share = static_cast<double>(memory.share(ranks));
    const auto layer = static_cast<double>(memory.layer);
    EXPECT_LE(static_cast<double>(memory.kept), 1.15 * share);
    EXPECT_LE(static_cast<double>(memory.peak), 1.15 * share + layer);
    kept += memory.kept;
  }
  EXPECT_GE(kept, 4 * all[0].whole) << "something is not counted";
}

TEST(FullyShardedMemoryTest, AStepTakesAnEvenShareAndOneGatheredLayer) {
  for (const std::int64_t layers : {2, 6}) {
    check_memory(2, {"dp=2", "fsdp", layers});
    check_memory(3, {"dp=3", "fsdp", layers});
    check_memory(4, {"dp=4", "fsdp", layers});
    check_memory(4, {"dp=2,tp=2", "fsdp+tp", layers});
    check_memory(4, {"dp=2,tp=2", "fsdp+sp", layers});
  }
}

TEST(FullyShardedMemoryTest, OtherStylesTakeMore) {
  test::MemoryCount count(2);
  run_ranks(2, [&](World& world) {
    const test::MemoryCount::Scope scope(count, world.rank());
    const Memory memory = memory_of(world, count, {"dp=2", "dp"});
    EXPECT_GE(memory.kept, 4 * memory.whole);
    EXPECT_GT(memory.peak, memory.kept);
  });
}

}  // namespace
}  // namespace tessera
