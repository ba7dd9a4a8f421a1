#include "tessera/tensor/in_place.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/samples.h"
#include "tessera/comm/traffic.h"

namespace tessera {
namespace {

using test::on_every_rank_count;
using test::waves;

torch::nn::Linear counted_linear(std::int64_t in, std::int64_t out) {
  torch::nn::Linear linear(torch::nn::LinearOptions(in, out));
  linear->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  linear->weight.copy_(waves({out, in}));
  linear->bias.copy_(waves({out}));
  return linear;
}

TEST(InPlaceTest, MemberRegistryAndOptimizerSeeTheSameDTensor) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto linear = counted_linear(5, 7);
    torch::optim::AdamW optimizer(linear->parameters(), torch::optim::AdamWOptions(1e-2));
    auto* const object = linear->weight.unsafeGetTensorImpl();
    distribute_in_place(linear->weight, mesh, {Shard(0)});
    EXPECT_EQ(linear->weight.unsafeGetTensorImpl(), object);
    EXPECT_TRUE(is_dtensor(linear->named_parameters()["weight"]));
    EXPECT_TRUE(is_dtensor(optimizer.param_groups()[0].params()[0]));
    EXPECT_TRUE(linear->weight.is_leaf());
    EXPECT_TRUE(linear->weight.requires_grad());
    EXPECT_EQ(placements_of(linear->weight), Placements{Shard(0)});
    EXPECT_TRUE(torch::equal(full_tensor(linear->weight).detach(), waves({7, 5})));
  });
}

TEST(InPlaceTest, AnOptimizerThatWasMadeBeforeTrainsAsOnPlainTensors) {
  const auto train = [](torch::nn::Linear linear, const at::Tensor& input,
                        const std::function<void()>& distribute) {
    torch::optim::AdamW optimizer(linear->parameters(), torch::optim::AdamWOptions(1e-2));
    distribute();
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      const auto loss = linear(input).pow(2).mean();
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<double>());
    }
    return losses;
  };
  const auto expected = train(counted_linear(5, 7), waves({3, 5}), [] {});
  on_every_rank_count([&](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto linear = counted_linear(5, 7);
    const auto input = distribute_tensor(waves({3, 5}), mesh, {Replicate()});
    const auto losses = train(linear, input, [&] {
      distribute_in_place(linear->weight, mesh, {Shard(0)});
      distribute_in_place(linear->bias, mesh, {Shard(0)});
    });
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-12);
  });
}

TEST(InPlaceTest, AGradientGoesAlongInPlace) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto linear = counted_linear(3, 5);
    linear(waves({2, 3})).sum().backward();
    const auto held = linear->weight.grad();
    const auto expected = held.clone();
    distribute_in_place(linear->weight, mesh, {Shard(0)});
    EXPECT_TRUE(is_dtensor(held)) << "whoever holds the gradient sees it";
    EXPECT_EQ(placements_of(linear->weight.grad()), Placements{Shard(0)});
    EXPECT_TRUE(torch::equal(full_tensor(linear->weight.grad()), expected));
    redistribute_in_place(linear->weight, {Shard(1)});
    EXPECT_EQ(placements_of(linear->weight), Placements{Shard(1)});
    EXPECT_EQ(placements_of(held), Placements{Shard(1)});
    EXPECT_TRUE(torch::equal(full_tensor(held), expected));
    EXPECT_TRUE(torch::equal(full_tensor(linear->weight).detach(), waves({5, 3})));
    // Gradients accumulate into what is there.
    distribute_in_place(linear->bias, mesh, {Replicate()});
    linear(distribute_tensor(waves({2, 3}), mesh, {Replicate()})).sum().backward();
    EXPECT_TRUE(torch::allclose(full_tensor(linear->weight.grad()), 2 * expected));
  });
}

TEST(InPlaceTest, AwkwardTensorsBecomeDTensors) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{0, 2}, {1}, {}, {5, 1}}) {
      const auto tensor = waves(sizes);
      distribute_in_place(tensor, mesh, {Replicate()});
      EXPECT_TRUE(torch::equal(full_tensor(tensor), waves(sizes)));
      if (sizes.empty()) continue;
      const auto sharded = waves(sizes);
      distribute_in_place(sharded, mesh, {Shard(0)});
      EXPECT_TRUE(torch::equal(full_tensor(sharded), waves(sizes)));
    }
    // Integers have no gradients, and buffers are such.
    const auto counter = torch::tensor(3);
    distribute_in_place(counter, mesh, {Replicate()});
    EXPECT_EQ(counter.item<std::int64_t>(), 3);
  });
}

TEST(InPlaceTest, BecomeGoesBothWaysAndCommunicatesNothing) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto tensor = waves({4, 3}).requires_grad_();
    const auto value = distribute_tensor(2 * waves({4, 3}), mesh, {Shard(0)});
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      become(tensor, value);
    }
    EXPECT_EQ(traffic.total_count(), 0);
    EXPECT_TRUE(torch::equal(full_tensor(tensor).detach(), 2 * waves({4, 3})));
    become(tensor, waves({4, 3}));
    EXPECT_FALSE(is_dtensor(tensor));
    EXPECT_TRUE(tensor.requires_grad());
    (tensor * tensor).sum().backward();
    EXPECT_TRUE(torch::allclose(tensor.grad(), 2 * waves({4, 3})));
  });
}

TEST(InPlaceTest, AViewStopsBeingOne) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto base = torch::ones({2, 4}, torch::kDouble);
    const auto view = base.view({4, 2}).requires_grad_();
    ASSERT_TRUE(view.is_view());
    distribute_in_place(view, mesh, {Shard(0)});
    EXPECT_FALSE(view.is_view());
    EXPECT_TRUE(view.is_leaf() && view.requires_grad());
    view.pow(2).sum().backward();
    EXPECT_TRUE(torch::equal(full_tensor(view.grad()), 2 * torch::ones({4, 2}, torch::kDouble)));
    const torch::NoGradGuard no_grad;
    view.zero_();
    EXPECT_TRUE(torch::equal(base, torch::ones({2, 4}, torch::kDouble)));
  });
}

TEST(InPlaceTest, SetDataAndCloneWork) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto linear = counted_linear(3, 5);
    linear->weight.set_data(distribute_tensor(waves({5, 3}), mesh, {Shard(0)}));
    EXPECT_TRUE(is_dtensor(linear->weight));
    distribute_in_place(linear->bias, mesh, {Shard(0)});
    const auto copy = std::dynamic_pointer_cast<torch::nn::LinearImpl>(linear->clone());
    EXPECT_EQ(placements_of(copy->weight), Placements{Shard(0)});
    EXPECT_EQ(placements_of(copy->named_parameters()["bias"]), Placements{Shard(0)});
    const torch::NoGradGuard no_grad;
    copy->weight.zero_();
    EXPECT_TRUE(torch::equal(full_tensor(linear->weight), waves({5, 3})));
    linear->to(torch::kFloat);
    EXPECT_EQ(linear->weight.scalar_type(), torch::kFloat);
    EXPECT_EQ(placements_of(linear->weight), Placements{Shard(0)});
  });
}

TEST(InPlaceTest, AnOldGraphCannotBeGoneBackThrough) {
  EXPECT_NO_THROW(run_ranks(2, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto tensor = waves({4}).requires_grad_();
    const auto loss = (tensor * tensor).sum();
    distribute_in_place(tensor, mesh, {Shard(0)});
    EXPECT_THROW(loss.backward(), c10::Error);
  }));
}

TEST(InPlaceTest, ErrorsSayWhatToDo) {
  const auto message = [](const std::function<void(const DeviceMesh&)>& fn) {
    return test::failure_of(2, [&](World& world) { fn(init_device_mesh("cpu", {world.size()})); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(message([](const auto& mesh) {
                const auto x = waves({4}).requires_grad_();
                distribute_in_place(x * 2, mesh, {Shard(0)});
              }),
              HasSubstr("has history, but only leaf tensors can change in place"));
  EXPECT_THAT(message([](const auto& mesh) {
                const auto x = waves({8}).view({4, 2}).requires_grad_();
                x.register_hook([](const at::Tensor&) {});
                distribute_in_place(x, mesh, {Shard(0)});
              }),
              HasSubstr("f64[4,2] (plain) is a view with hooks, which cannot stop being a view"));
  EXPECT_THAT(message([](const auto& mesh) {
                become(waves({3}), distribute_tensor(waves({4}), mesh, {Shard(0)}));
              }),
              HasSubstr("become: f64[3] (plain) on cpu cannot become f64[4][S(0)] on cpu; sizes, "
                        "dtype and device must be the same"));
  EXPECT_THAT(message([](const auto& mesh) {
                const auto x = waves({4}).requires_grad_();
                x.sum().backward();
                become(x, distribute_tensor(waves({4}), mesh, {Shard(0)}));
              }),
              HasSubstr("has a gradient, and what it is to become has none"));
  EXPECT_THAT(message([](const auto& mesh) {
                const auto x = distribute_tensor(waves({4}), mesh, {Shard(0)});
                distribute_in_place(x, mesh, {Replicate()});
              }),
              HasSubstr("call `redistribute` instead?"));
}

}  // namespace
}  // namespace tessera
