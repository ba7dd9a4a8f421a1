#include "nn/networks.h"

#include <gtest/gtest.h>

#include "tessera/nn/state.h"

namespace tessera::test {

at::Tensor waves(const std::vector<std::int64_t>& sizes, double step) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return (torch::arange(count, torch::kDouble) * step + 0.1).sin().reshape(sizes).clone();
}

at::Tensor words(const std::vector<std::int64_t>& sizes) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return (torch::arange(count) * 7 + 3).remainder(11).reshape(sizes).clone();
}

void fill(torch::nn::Module& module) {
  module.to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  double step = 0.3;
  for (auto& item : module.named_parameters()) {
    item.value().copy_(waves(item.value().sizes().vec(), step) * 0.5);
    step += 0.07;
  }
}

std::vector<DeviceMesh> meshes_of(const World& world) {
  std::vector<DeviceMesh> meshes = {init_device_mesh("cpu", {world.size()}, {"tp"})};
  if (world.size() == 4) meshes.push_back(init_device_mesh("cpu", {2, 2}, {"dp", "tp"}));
  return meshes;
}

std::vector<double> losses_of(torch::optim::Optimizer& optimizer,
                              const std::function<at::Tensor()>& loss_fn, int steps) {
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const auto loss = loss_fn();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

void expect_same_state(torch::nn::Module& module, torch::nn::Module& expected) {
  const auto own = nn::full_state_dict(module);
  const auto other = nn::full_state_dict(expected);
  ASSERT_EQ(own.size(), other.size());
  for (const auto& [name, tensor] : other) {
    ASSERT_TRUE(own.contains(name)) << name;
    EXPECT_TRUE(torch::allclose(own.at(name), tensor, 1e-9, 1e-11)) << name;
  }
}

void expect_near(const std::vector<double>& losses, const std::vector<double>& expected) {
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i], expected[i], 1e-10) << "step " << i;
  }
}

}  // namespace tessera::test
