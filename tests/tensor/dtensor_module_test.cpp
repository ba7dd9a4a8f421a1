// Modules of libtorch, distributed in place, beside the same ones with plain tensors.

#include <functional>
#include <mutex>

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/local_map_cases.h"
#include "tensor/samples.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/in_place.h"
#include "tessera/tensor/random.h"

namespace tessera {
namespace {

using test::meshes_of;
using test::on_every_rank_count;
using test::sample_values;

Placements everywhere(const DeviceMesh& mesh, const Placement& placement) {
  return Placements(static_cast<std::size_t>(mesh.ndim()), placement);
}

/// Makes the same module on every rank: libtorch has one generator for all of them.
template <typename Module>
Module made(const std::function<Module()>& make) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  torch::manual_seed(3);
  Module module = make();
  module->to(torch::kDouble);
  return module;
}

template <typename Module>
using Loss = std::function<at::Tensor(Module&, const at::Tensor&)>;

template <typename Module>
std::vector<double> losses_of(Module module, const at::Tensor& input, const Loss<Module>& loss) {
  torch::optim::AdamW optimizer(module->parameters(), torch::optim::AdamWOptions(1e-2));
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const auto value = loss(module, input);
    value.backward();
    optimizer.step();
    losses.push_back(value.template item<double>());
  }
  const torch::NoGradGuard no_grad;
  losses.push_back(loss(module, input).template item<double>());
  const c10::InferenceMode inference;
  losses.push_back(loss(module, input).template item<double>());
  return losses;
}

/// Expects the same losses with parameters replicated or cut, and inputs cut along each of `dims`.
template <typename Module>
void expect_same_training(const std::function<Module()>& make, const at::Tensor& input,
                          const std::vector<std::int64_t>& dims, const Loss<Module>& loss) {
  on_every_rank_count([&](World& world) {
    const auto expected = losses_of<Module>(made(make), input, loss);
    for (const auto& mesh : meshes_of(world)) {
      for (const Placement& parameters : {Placement(Replicate()), Placement(Shard(0))}) {
        for (const auto dim : dims) {
          Module module = made(make);
          for (const auto& parameter : module->parameters()) {
            distribute_in_place(parameter, mesh, everywhere(mesh, parameters));
          }
          for (const auto& buffer : module->buffers()) {
            distribute_in_place(buffer, mesh, everywhere(mesh, Replicate()));
          }
          const auto losses = losses_of<Module>(
              module, distribute_tensor(input, mesh, everywhere(mesh, Shard(dim))), loss);
          for (std::size_t i = 0; i < losses.size(); ++i) {
            EXPECT_NEAR(losses[i], expected[i], 1e-9)
                << "step " << i << ", input cut along " << dim;
          }
        }
      }
    }
  });
}

template <typename Module>
Loss<Module> squares() {
  return [](Module& module, const at::Tensor& input) {
    return module->forward(input).square().mean();
  };
}

template <typename Module>
Loss<Module> squares_of_first() {
  return [](Module& module, const at::Tensor& input) {
    return std::get<0>(module->forward(input)).square().mean();
  };
}

TEST(DTensorModuleTest, TransformerEncoder) {
  using torch::nn::TransformerEncoder;
  expect_same_training<TransformerEncoder>(
      [] {
        return TransformerEncoder(torch::nn::TransformerEncoderOptions(
            torch::nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(10).dropout(0), 2));
      },
      sample_values({5, 3, 6}), {0, 1}, squares<TransformerEncoder>());
}

TEST(DTensorModuleTest, ConvolutionsAndNorms) {
  using namespace torch::nn;
  expect_same_training<Sequential>(
      [] {
        return Sequential(Conv2d(Conv2dOptions(2, 4, 3).padding(1)), BatchNorm2d(4), ReLU(),
                          MaxPool2d(2), GroupNorm(2, 4), GELU(), AdaptiveAvgPool2d(1), Flatten(),
                          Linear(4, 3));
      },
      sample_values({5, 2, 6, 7}), {0, 2}, squares<Sequential>());
}

TEST(DTensorModuleTest, RecurrentNetworksBeginWithZeros) {
  using namespace torch::nn;
  const auto input = sample_values({4, 3, 3});
  expect_same_training<LSTM>(
      [] { return LSTM(LSTMOptions(3, 4).num_layers(2).bidirectional(true)); }, input, {1},
      squares_of_first<LSTM>());
  expect_same_training<GRU>([] { return GRU(GRUOptions(3, 5).batch_first(true)); }, input, {0},
                            squares_of_first<GRU>());
  expect_same_training<RNN>([] { return RNN(RNNOptions(3, 5)); }, input, {1},
                            squares_of_first<RNN>());
}

TEST(DTensorModuleTest, RecurrentCellsBeginWithZeros) {
  using namespace torch::nn;
  const auto input = sample_values({4, 3});
  expect_same_training<LSTMCell>([] { return LSTMCell(3, 5); }, input, {0, 1},
                                 squares_of_first<LSTMCell>());
  expect_same_training<GRUCell>([] { return GRUCell(3, 5); }, input, {0}, squares<GRUCell>());
  expect_same_training<RNNCell>([] { return RNNCell(3, 5); }, input, {0}, squares<RNNCell>());
}

TEST(DTensorModuleTest, StatesOfRecurrentNetworksAreGivenAsDTensors) {
  on_every_rank_count([](World& world) {
    using torch::nn::GRU;
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto plain = made<GRU>([] { return GRU(3, 5); });
    auto module = made<GRU>([] { return GRU(3, 5); });
    for (const auto& parameter : module->parameters()) {
      distribute_in_place(parameter, mesh, {Shard(0)});
    }
    const auto input = sample_values({4, 3, 3});
    const auto state = sample_values({1, 3, 5}, 1);
    const auto x = distribute_tensor(input, mesh, {Shard(1)});
    const auto output = std::get<0>(module->forward(x, distribute_tensor(state, mesh, {Shard(1)})));
    EXPECT_TRUE(torch::allclose(full_tensor(output), std::get<0>(plain->forward(input, state))));
    test::expect_refused([&] { (void)module->forward(x, state); },
                         {"got mixed torch.Tensor and DTensor", "a plain tensor f64[3,5]"});
  });
}

TEST(DTensorModuleTest, CompositesThatReadMemoryWorkInInferenceMode) {
  on_every_rank_count([](World& world) {
    const c10::InferenceMode inference;
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({5, 4});
    const auto x = distribute_tensor(values, mesh, {Shard(0)});
    const auto labels = torch::tensor({0, 3, 1, 2, 2}, torch::kLong);
    const auto dlabels = distribute_tensor(labels, mesh, {Shard(0)});
    const auto cuts = torch::tensor({2, 3}, torch::kLong);
    EXPECT_TRUE(
        torch::allclose(full_tensor(torch::max_pool1d(x, 2)), torch::max_pool1d(values, 2)));
    EXPECT_TRUE(torch::equal(full_tensor(torch::one_hot(dlabels)), torch::one_hot(labels)));
    EXPECT_TRUE(torch::allclose(full_tensor(torch::cross_entropy_loss(x, dlabels)),
                                torch::cross_entropy_loss(values, labels)));
    EXPECT_TRUE(torch::equal(
        full_tensor(torch::tensor_split(x, distribute_tensor(cuts, mesh, {Replicate()}))[1]),
        torch::tensor_split(values, cuts)[1]));
    EXPECT_TRUE(torch::allclose(full_tensor((x * 2 + 1).view({20})), (values * 2 + 1).view({20})));
    EXPECT_TRUE(x.is_inference());
  });
}

TEST(DTensorModuleTest, ViewsInInferenceModeAreViews) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({5, 4});
    for (const bool is_ordinary : {true, false}) {
      const c10::InferenceMode outer(!is_ordinary);
      const auto x = distribute_tensor(values, mesh, {Shard(0)});
      const c10::InferenceMode inference;
      // The first view shares memory with the tensor, the second had to move.
      const auto columns = x.t();
      const auto flat = x.view({20});
      EXPECT_EQ(columns.is_inference(), !is_ordinary);
      columns.add_(1);
      EXPECT_TRUE(torch::equal(full_tensor(flat), (values + 1).view({20})));
      flat.mul_(2);
      EXPECT_TRUE(torch::equal(full_tensor(x), (values + 1) * 2));
    }
  });
}

}  // namespace
}  // namespace tessera
