// One step of the GPT in examples/gpt on a mesh; prints JSON for compare.py.
//
//   gpt_bench STYLE MESH [--ranks N] [--engine NAME]

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <vector>

#include "tessera/base/concat.h"
#include "tessera/tessera.h"
#include "training.h"

namespace {

using namespace tessera;

constexpr int kWarmup = 5;
constexpr int kSteps = 30;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

void measure(const World& world, const std::string& style, const std::string& mesh_text) {
  torch::set_num_threads(1);
  const gpt::Text text(gpt::story());
  gpt::TrainingOptions options;
  options.config.vocabulary = text.vocabulary();
  const DeviceMesh mesh("cpu", MeshShape::parse(mesh_text));
  gpt::Training training(mesh, gpt::parse_style(style), text, options);
  CommDebugMode traffic;
  std::vector<double> times;
  for (int step = 0; step < kWarmup + kSteps; ++step) {
    if (step == kWarmup - 1) {
      const auto scope = traffic.record();
      training.step();
      continue;
    }
    barrier(world.group());
    const auto begin = std::chrono::steady_clock::now();
    training.step();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    if (step >= kWarmup) times.push_back(taken.count());
  }
  if (world.rank() != 0) return;
  std::cout << concat("{\"name\": \"", style, " on ", mesh_text, "\", \"engine\": \"",
                      world.engine(), "\", \"ms\": ", median(times),
                      ", \"received_bytes\": ", traffic.received_bytes(),
                      ", \"collectives\": ", traffic.total_count(), "}\n");
}

}  // namespace

int main(int argc, char** argv) {
  return launch(argc, argv, [&](World& world) {
    TORCH_CHECK(argc == 3, "usage: gpt_bench STYLE MESH [--ranks N] [--engine NAME]");
    measure(world, argv[1], argv[2]);
  });
}
