// Trains a small GPT on a mesh of ranks, and the same on one rank. `--help` lists the options.

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <tessera/base/check.h>

#include "demo_arguments.h"
#include "demo_report.h"

namespace gpt {
namespace {

using namespace tessera;
using Look = tools::Style;

// Small enough that rounding does not grow from step to step.
constexpr double kLearningRate = 1e-3;

double milliseconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

/// One rank's part of the demo.
class Demo {
 public:
  Demo(const World& world, const DemoArguments& arguments, const Look& look)
      : world_(world), arguments_(arguments), look_(look), text_(story()) {
    options_.config.vocabulary = text_.vocabulary();
    options_.steps = arguments.steps;
    options_.learning_rate = kLearningRate;
    if (arguments.is_double) options_.dtype = torch::kDouble;
    run_.tolerance = arguments.is_double ? 1e-10 : 1e-5;
  }

  void run() {
    const MeshShape shape = arguments_.mesh.value_or(default_mesh(world_.size(), arguments_.style));
    TESSERA_CHECK(shape.num_ranks() == world_.size(), "--mesh ", shape, " has ", shape.num_ranks(),
                  " ranks, but there are ", world_.size());
    const DeviceMesh mesh("cpu", shape);
    const Style style = parse_style(arguments_.style.value_or(default_style(shape)));
    train_alone();
    train_together(mesh, style);
    say(loss_table(run_, look_) + '\n' + traffic_table(run_, look_) + closing(run_, mesh, look_));
    TESSERA_CHECK(greatest_difference(run_) <= run_.tolerance,
                  "the losses differ from those on one rank");
  }

 private:
  [[nodiscard]] bool speaks() const { return world_.rank() == 0; }
  void say(const std::string& text) const {
    if (speaks()) std::cout << text << std::flush;
  }
  void show_progress(std::int64_t done, const std::string& text) const {
    if (look_.color) say(progress(done, options_.steps, text, look_));
  }
  void end_progress() const {
    if (look_.color) say("\r\x1b[K");
  }

  /// The first rank trains, the others wait: the losses that the mesh must give.
  void train_alone() {
    const DeviceMesh alone("cpu", MeshShape({1}, {"dp"}, {world_.rank()}));
    std::optional<Training> training;
    if (speaks()) training.emplace(alone, parse_style("dp"), text_, options_);
    std::vector<double> times;
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      double loss = 0;
      if (training) times.push_back(milliseconds_of([&] { loss = training->step(); }));
      // All ranks meet at every step, so that nobody waits longer than for one.
      barrier(world_.group());
      loss = all_reduce(torch::tensor(loss, torch::kDouble), ReduceOp::sum, world_.group())
                 .item<double>();
      run_.single_losses.push_back(loss);
      show_progress(step + 1, "on one rank, to compare with");
    }
    end_progress();
    if (training) run_.single_step_ms = median(times);
  }

  void train_together(const DeviceMesh& mesh, const Style& style) {
    Training training(mesh, style, text_, options_);
    say(opening(training, mesh, style, options_, look_));
    std::vector<double> times;
    for (std::int64_t step = 0; step < options_.steps; ++step) {
      CommDebugMode traffic;
      {
        const auto scope = traffic.record();
        times.push_back(milliseconds_of([&] { run_.losses.push_back(training.step()); }));
      }
      run_.traffic = traffic.records();
      show_progress(step + 1, concat("loss ", run_.losses.back()));
    }
    end_progress();
    run_.step_ms = median(times);
  }

  World world_;
  const DemoArguments& arguments_;
  const Look& look_;
  Text text_;
  TrainingOptions options_;
  DemoRun run_;
};

int run_demo(int argc, char** argv) {
  DemoArguments arguments;
  try {
    arguments = parse_demo_arguments(argc, argv);
  } catch (const Error& error) {
    std::cerr << "tessera_demo: " << error.what() << '\n';
    return 2;
  }
  if (arguments.help) {
    std::cout << demo_usage();
    return 0;
  }
  const Look look = tools::standard_output_style(tools::ColorMode::automatic, arguments.ascii);
  std::vector<char*> words = {argv[0]};
  for (auto& word : arguments.launch) words.push_back(word.data());
  words.push_back(nullptr);
  int count = static_cast<int>(words.size()) - 1;
  return launch(count, words.data(), [&](World& world) { Demo(world, arguments, look).run(); });
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) { return gpt::run_demo(argc, argv); }
