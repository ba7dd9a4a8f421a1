#include "tessera/nn/gradient_sync.h"

#include <gmock/gmock.h>

#include <torch/types.h>

#include "support/rank_test.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(GradientSyncTest, GradientsTakeTheLayoutsOfTheirParameters) {
  run_ranks(4, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const std::vector<Placement> all = {Replicate(), Shard(0), Shard(1)};
    for (const auto& outer : all) {
      for (const auto& inner : all) {
        const auto plain = torch::arange(15, torch::kDouble).reshape({5, 3});
        auto weight = distribute_tensor(plain, mesh, {outer, inner});
        weight.requires_grad_(true);
        nn::sync_gradients({weight});
        const auto x = distribute_tensor(plain.add(1), mesh, {Partial(), Partial()});
        // The gradient comes as contributions of all ranks.
        (weight * 1).backward(x);
        EXPECT_EQ(layout_of(weight.grad()), layout_of(weight)) << to_string(weight.grad());
        EXPECT_TRUE(torch::equal(full_tensor(weight.grad()), plain.add(1)));
      }
    }
  });
}

TEST(GradientSyncTest, APassThatThrowsLeavesNothingBehind) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    auto weight = distribute_tensor(torch::ones({3}, torch::kDouble), mesh, {Replicate()});
    auto other = distribute_tensor(torch::ones({3}, torch::kDouble), mesh, {Replicate()});
    weight.requires_grad_(true);
    other.requires_grad_(true);
    nn::sync_gradients({weight, other});
    const auto x = distribute_tensor(torch::ones({4, 3}, torch::kDouble), mesh, {Shard(0)});
    auto failing = other * 1;
    failing.register_hook([](const at::Tensor&) { throw std::runtime_error("planted"); });
    const auto product = (x * weight).sum();
    const auto doomed = (failing * redistribute(product, {Replicate()})).sum();
    EXPECT_THROW(doomed.backward(), std::runtime_error);
    weight.mutable_grad().reset();
    other.mutable_grad().reset();
    (x * weight * other).sum().backward();
    EXPECT_TRUE(torch::equal(to_local(weight.grad()), torch::full({3}, 4.0, torch::kDouble)));
    EXPECT_TRUE(torch::equal(to_local(other.grad()), torch::full({3}, 4.0, torch::kDouble)));
  });
}

TEST(GradientSyncTest, PlainParametersAreLeftAlone) {
  auto weight = torch::ones({3}, torch::requires_grad());
  nn::sync_gradients({weight});
  (weight * 2).sum().backward();
  EXPECT_TRUE(torch::equal(weight.grad(), torch::full({3}, 2.0)));
}

TEST(GradientSyncTest, SecondDerivativesWork) {
  run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    auto weight = distribute_tensor(torch::full({3}, 2.0, torch::kDouble), mesh, {Replicate()});
    weight.requires_grad_(true);
    nn::sync_gradients({weight});
    const auto x = distribute_tensor(torch::ones({4, 3}, torch::kDouble), mesh, {Shard(0)});
    const auto loss = (x * weight.pow(3)).sum();
    loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    const auto first = weight.grad();
    weight.mutable_grad() = at::Tensor();
    first.sum().backward();
    EXPECT_TRUE(
        torch::allclose(full_tensor(weight.grad()), torch::full({3}, 48.0, torch::kDouble)));
  });
}

TEST(GradientSyncTest, WrongArgumentsAreRefused) {
  const auto text_of = [](const std::vector<at::Tensor>& parameters, std::int64_t bytes) {
    try {
      nn::sync_gradients(parameters, {.bucket_bytes = bytes});
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(text_of({}, 0),
              HasSubstr("sync_gradients: bucket_bytes 0 given; it must be at least 1"));
  EXPECT_THAT(text_of({at::Tensor()}, 1), HasSubstr("pass parameters"));
  const auto weight = torch::ones({3}, torch::requires_grad());
  EXPECT_THAT(text_of({weight * 2}, 1), HasSubstr("one with history"));
}

}  // namespace
}  // namespace tessera
