#include "tensor/training_case.h"

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/samples.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/factories.h"
#include "tessera/tensor/random.h"

namespace tessera::test {
namespace {

constexpr int kSteps = 4;

/// Where the tensors of the network go along one mesh dim.
struct Style {
  const char* name;
  Placement input;
  Placement first;
  Placement bias;
  Placement second;
};

const std::vector<Style>& styles() {
  static const std::vector<Style> all = {
      {"data parallel", Shard(0), Replicate(), Replicate(), Replicate()},
      {"tensor parallel", Replicate(), Shard(0), Shard(0), Shard(1)},
      {"sharded parameters", Shard(0), Shard(0), Shard(0), Shard(0)},
      {"rows", Shard(1), Shard(1), Replicate(), Shard(1)},
  };
  return all;
}

std::vector<double> losses_of(const at::Tensor& input, std::vector<at::Tensor> parameters) {
  for (auto& parameter : parameters) parameter.requires_grad_(true);
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(1e-2));
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    auto hidden = torch::gelu(torch::linear(input, parameters[0], parameters[1]));
    hidden = torch::layer_norm(hidden, {hidden.size(-1)});
    const auto logits = torch::linear(hidden, parameters[2]);
    const auto loss = torch::log_softmax(logits, 1).pow(2).mean();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

}  // namespace

void check_training(World& world) {
  const auto input = waves({7, 5});
  const auto values = std::vector<at::Tensor>{waves({6, 5}), waves({6}), waves({3, 6})};
  std::vector<at::Tensor> plain;
  for (const auto& value : values) plain.push_back(value.clone());
  const auto expected = losses_of(input, plain);
  for (const auto& mesh : meshes_of(world)) {
    for (const auto& outer : styles()) {
      for (const auto& inner : styles()) {
        const bool is_flat = mesh.ndim() == 1;
        if (is_flat && &outer != &inner) continue;
        const auto placed = [&](Placement Style::*which) {
          Placements placements = {outer.*which};
          if (!is_flat) placements.push_back(inner.*which);
          return placements;
        };
        SCOPED_TRACE(std::string(outer.name) + " and " + inner.name);
        const auto losses = losses_of(distribute_tensor(input, mesh, placed(&Style::input)),
                                      {distribute_tensor(values[0], mesh, placed(&Style::first)),
                                       distribute_tensor(values[1], mesh, placed(&Style::bias)),
                                       distribute_tensor(values[2], mesh, placed(&Style::second))});
        for (int step = 0; step < kSteps; ++step) {
          const auto at = static_cast<std::size_t>(step);
          EXPECT_NEAR(losses[at], expected[at], 1e-10) << "step " << step;
        }
      }
    }
  }
}

void check_moves(World& world) {
  const auto whole = waves({7, 5});
  for (const auto& mesh : meshes_of(world)) {
    const auto ndim = static_cast<std::size_t>(mesh.ndim());
    const std::vector<Placement> all = {Replicate(), Shard(0), Shard(1), Partial()};
    for (const auto& from : all) {
      for (const auto& to : all) {
        auto source = distribute_tensor(whole, mesh, Placements(ndim, from));
        source.requires_grad_(true);
        const auto moved = redistribute(source, Placements(ndim, to), {.async_op = true});
        EXPECT_TRUE(torch::allclose(full_tensor(moved), whole)) << to_string(moved);
        (moved * moved).sum().backward();
        EXPECT_TRUE(torch::allclose(full_tensor(source.grad()), 2 * whole));
      }
    }
    manual_seed(7);
    const auto first = full_tensor(rand({5, 3}, mesh, Placements(ndim, Replicate())));
    manual_seed(7);
    const auto second = full_tensor(rand({5, 3}, mesh, Placements(ndim, Shard(0))));
    EXPECT_TRUE(torch::equal(first, second));
  }
}

}  // namespace tessera::test
