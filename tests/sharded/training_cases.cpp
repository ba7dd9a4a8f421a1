#include "sharded/training_cases.h"

#include <functional>

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/nn/replaceable.h"
#include "tessera/sharded/embedding_bag.h"
#include "tessera/sharded/sharding_plan.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::test {
namespace {

using namespace sharded;

constexpr int kSteps = 5;

struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(6, 7));
    fc2 = register_module("fc2", torch::nn::Linear(7, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(torch::relu(fc1(x))); }
  torch::nn::Linear fc1{nullptr};
  torch::nn::Linear fc2{nullptr};
};

struct BagNetImpl : torch::nn::Module {
  explicit BagNetImpl(const torch::nn::EmbeddingBagOptions& options) {
    table = register_module("table", nn::Replaceable<torch::nn::EmbeddingBag>(options));
    head = register_module("head", torch::nn::Linear(5, 2));
  }
  at::Tensor forward(const at::Tensor& indices, const at::Tensor& offsets) {
    return head(torch::tanh(table(indices, offsets)));
  }
  nn::Replaceable<torch::nn::EmbeddingBag> table{nullptr};
  torch::nn::Linear head{nullptr};
};

/// Fills all parameters with numbers that depend on their names' order only.
void fill(torch::nn::Module& module, double scale = 1) {
  const torch::NoGradGuard no_grad;
  double phase = 0.3;
  for (auto& parameter : module.parameters()) {
    const auto index = torch::arange(parameter.numel(), torch::kDouble).reshape(parameter.sizes());
    parameter.copy_(torch::sin(index * 0.7 + phase) * scale);
    phase += 1;
  }
}

at::Tensor whole(const at::Tensor& tensor) {
  return is_dtensor(tensor) ? full_tensor(tensor.detach()) : tensor.detach();
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  EXPECT_TRUE(torch::allclose(whole(actual), whole(expected), 1e-5, 1e-6)) << what << "\n"
                                                                           << whole(actual) << "\n"
                                                                           << whole(expected);
}

using Loss = std::function<at::Tensor(const at::Tensor& output)>;

/// Trains both for a few steps, and compares everything on the way.
void train_both(torch::nn::Module& plain, torch::nn::Module& sharded,
                torch::optim::Optimizer& plain_optimizer,
                torch::optim::Optimizer& sharded_optimizer,
                const std::function<at::Tensor()>& plain_loss,
                const std::function<at::Tensor()>& sharded_loss) {
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    plain_optimizer.zero_grad();
    sharded_optimizer.zero_grad();
    const at::Tensor expected = plain_loss();
    const at::Tensor actual = sharded_loss();
    expect_close(actual, expected, "loss");
    expected.backward();
    actual.backward();
    const auto names = sharded.named_parameters();
    for (const auto& item : plain.named_parameters()) {
      const auto* found = names.find(item.key());
      ASSERT_NE(found, nullptr) << item.key();
      ASSERT_TRUE(found->grad().defined()) << item.key();
      expect_close(found->grad(), item.value().grad(), "gradient of " + item.key());
    }
    plain_optimizer.step();
    sharded_optimizer.step();
    for (const auto& item : plain.named_parameters()) {
      expect_close(names[item.key()], item.value(), item.key());
    }
  }
}

}  // namespace

void check_sharded_mlp(World& world) {
  for (const bool before : {true, false}) {
    SCOPED_TRACE(before ? "optimizer made before" : "optimizer made after");
    MlpImpl plain;
    MlpImpl sharded;
    fill(plain);
    // The values come from the source rank.
    const std::int64_t root = world.size() - 1;
    fill(sharded, world.rank() == root ? 1 : 0.5);
    std::optional<torch::optim::AdamW> optimizer;
    const auto options = torch::optim::AdamWOptions(0.05);
    if (before) optimizer.emplace(sharded.parameters(), options);

    auto ranks = world.group().ranks();
    std::reverse(ranks.begin(), ranks.end());
    const auto rows = ChunkShardingSpec::over(0, ranks);
    shard_module(sharded,
                 {.plan = {{"fc1.*", rows}, {"fc2.weight", ChunkShardingSpec::over(1, ranks)}}},
                 root);
    EXPECT_EQ(placements_of(sharded.fc1->weight), Placements{Shard(0)});
    EXPECT_EQ(placements_of(sharded.fc1->bias), Placements{Shard(0)});
    EXPECT_EQ(placements_of(sharded.fc2->weight), Placements{Shard(1)});
    EXPECT_EQ(placements_of(sharded.fc2->bias), Placements{Replicate()});
    if (!before) optimizer.emplace(sharded.parameters(), options);
    torch::optim::AdamW plain_optimizer(plain.parameters(), options);

    const at::Tensor x = torch::sin(torch::arange(24.0)).reshape({4, 6});
    const at::Tensor input = distribute_tensor(x, mesh_of(sharded.fc1->weight), {Replicate()});
    train_both(
        plain, sharded, plain_optimizer, *optimizer,
        [&] { return plain.forward(x).square().mean(); },
        [&] { return sharded.forward(input).square().mean(); });
  }
}

void check_sharded_embedding(World& world) {
  const at::Tensor indices = torch::tensor({0, 3, 6, 6, 1, 2, 5, 0}, torch::kLong);
  const at::Tensor offsets = torch::tensor({0, 3, 3, 5}, torch::kLong);
  for (const std::int64_t dim : {0, 1}) {
    for (int mode = 0; mode < (dim == 0 ? 2 : 3); ++mode) {
      for (const bool pads : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << "dim " << dim << ", mode " << mode << ", padding " << pads);
        torch::nn::EmbeddingBagOptions options(7, 5);
        if (mode == 0) options.mode(torch::kSum);
        if (mode == 1) options.mode(torch::kMean);
        if (mode == 2) options.mode(torch::kMax);
        if (pads) options.padding_idx(6);
        BagNetImpl plain(options);
        BagNetImpl sharded(options);
        fill(plain);
        fill(sharded, world.rank() == 0 ? 1 : 0.5);
        torch::optim::SGD plain_optimizer(plain.parameters(), 0.1);
        torch::optim::SGD optimizer(sharded.parameters(), 0.1);
        const auto ranks = world.group().ranks();
        shard_module(sharded, {.plan = {{"table", std::make_shared<EmbeddingBagSharder>(
                                                      ChunkShardingSpec::over(dim, ranks))}}});
        const auto weight = sharded.named_parameters()["table.weight"];
        EXPECT_EQ(placements_of(weight), Placements{Shard(dim)});
        train_both(
            plain, sharded, plain_optimizer, optimizer,
            [&] { return plain.forward(indices, offsets).square().sum(); },
            [&] { return sharded.forward(indices, offsets).square().sum(); });
      }
    }
  }
}

}  // namespace tessera::test
