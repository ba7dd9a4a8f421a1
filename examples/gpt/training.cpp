#include "training.h"

namespace gpt {
namespace {

Gpt spread_model(const tessera::DeviceMesh& mesh, const Style& style,
                 const TrainingOptions& options) {
  Gpt model(options.config);
  // Not `model->to(dtype)`, which would convert the buffer of whole numbers too.
  for (auto& parameter : model->parameters()) parameter.set_data(parameter.to(options.dtype));
  spread(model, mesh, style);
  tessera::manual_seed(options.seed);
  model->reset_parameters();
  return model;
}

}  // namespace

Training::Training(const tessera::DeviceMesh& mesh, const Style& style, const Text& text,
                   const TrainingOptions& options)
    : mesh_(mesh),
      text_(&text),
      options_(options),
      model_(spread_model(mesh, style, options)),
      optimizer_(model_->parameters(), torch::optim::AdamWOptions(options.learning_rate)) {}

double Training::step() {
  const auto batch = spread(text_->batch(step_++, options_.rows, options_.length), mesh_);
  optimizer_.zero_grad();
  const auto loss = loss_of(model_->forward(batch.tokens), batch.targets);
  loss.backward();
  optimizer_.step();
  return loss.item<double>();
}

std::vector<double> losses_of(const tessera::DeviceMesh& mesh, const Style& style, const Text& text,
                              const TrainingOptions& options) {
  Training training(mesh, style, text, options);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < options.steps; ++step) losses.push_back(training.step());
  return losses;
}

}  // namespace gpt
