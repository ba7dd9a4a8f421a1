#include "nn/parallel_cases.h"

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "nn/networks.h"
#include "tessera/nn/clip_grad.h"
#include "tessera/nn/parallelize_module.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::test {
namespace {

using nn::Activations;
using nn::ColwiseParallel;
using nn::parallelize_module;
using nn::ParallelPlan;
using nn::RowwiseParallel;
using nn::SequenceParallel;

at::Tensor loss_of(const at::Tensor& logits) {
  return torch::log_softmax(logits, -1).pow(2).mean();
}

/// A plain network, trained.
struct Reference {
  PlainNetwork network;
  std::vector<double> losses;

  Reference() {
    fill(*network);
    const auto tokens = words({4, 5});
    torch::optim::AdamW optimizer(network->parameters(), torch::optim::AdamWOptions(1e-2));
    losses = losses_of(optimizer, [&] { return loss_of(network(tokens)); });
  }
};

const ParallelPlan& tensor_parallel() {
  static const ParallelPlan plan = {{"embedding", RowwiseParallel{}},
                                    {"fc1", ColwiseParallel{}},
                                    {"fc2", RowwiseParallel{}},
                                    {"head", ColwiseParallel{.output_layouts = Replicate()}}};
  return plan;
}

/// How tokens are placed: over "dp" where there is one.
Placements batch_placements(const DeviceMesh& mesh) {
  Placements batch(static_cast<std::size_t>(mesh.ndim()), Replicate());
  if (mesh.ndim() == 2) batch[0] = Shard(0);
  return batch;
}

}  // namespace

void check_plain_activations(World& world) {
  Reference reference;
  for (const auto& mesh : meshes_of(world)) {
    HookedNetwork network;
    fill(*network);
    torch::optim::AdamW optimizer(network->parameters(), torch::optim::AdamWOptions(1e-2));
    parallelize_module(*network, mesh["tp"], tensor_parallel());
    EXPECT_EQ(placements_of(network->fc1->weight), Placements{Shard(0)});
    EXPECT_EQ(placements_of(network->fc1->bias), Placements{Shard(0)});
    EXPECT_EQ(placements_of(network->fc2->weight), Placements{Shard(1)});
    EXPECT_EQ(placements_of(network->fc2->bias), Placements{Replicate()});
    EXPECT_EQ(placements_of(network->embedding->weight), Placements{Shard(0)});
    EXPECT_FALSE(is_dtensor(network->norm->weight));
    const auto losses = losses_of(optimizer, [&] {
      const auto logits = network(words({4, 5}));
      EXPECT_FALSE(is_dtensor(logits));
      return loss_of(logits);
    });
    expect_near(losses, reference.losses);
    expect_same_state(*network, *reference.network);
  }
}

void check_distributed_activations(World& world) {
  Reference reference;
  for (const auto& mesh : meshes_of(world)) {
    PlainNetwork network;
    fill(*network);
    torch::optim::AdamW optimizer(network->parameters(), torch::optim::AdamWOptions(1e-2));
    parallelize_module(*network, mesh,
                       {{"embedding", RowwiseParallel{}},
                        {"fc1", ColwiseParallel{}},
                        {"fc2", RowwiseParallel{}},
                        {"head", ColwiseParallel{}}},
                       {.activations = Activations::distributed, .mesh_dim = "tp"});
    EXPECT_TRUE(is_dtensor(network->norm->weight)) << "the rest is replicated";
    const auto tokens = distribute_tensor(words({4, 5}), mesh, batch_placements(mesh));
    const auto losses = losses_of(optimizer, [&] { return loss_of(network(tokens)); });
    expect_near(losses, reference.losses);
    expect_same_state(*network, *reference.network);
  }
}

void check_sequence_parallel(World& world) {
  Reference reference;
  for (const auto& mesh : meshes_of(world)) {
    HookedNetwork network;
    fill(*network);
    torch::optim::AdamW optimizer(network->parameters(), torch::optim::AdamWOptions(1e-2));
    parallelize_module(
        *network, mesh["tp"],
        {{"embedding", RowwiseParallel{.output_layouts = Shard(1), .use_local_output = false}},
         {"norm", SequenceParallel{}},
         {"fc1", ColwiseParallel{.input_layouts = Shard(1), .use_local_output = false}},
         {"fc2", RowwiseParallel{.output_layouts = Shard(1), .use_local_output = false}},
         {"head", ColwiseParallel{.input_layouts = Shard(1), .output_layouts = Replicate()}}});
    EXPECT_EQ(placements_of(network->norm->weight), Placements{Replicate()});
    const auto losses = losses_of(optimizer, [&] { return loss_of(network(words({4, 5}))); });
    expect_near(losses, reference.losses);
    expect_same_state(*network, *reference.network);
  }
}

void check_loss_and_clipping(World& world) {
  const auto tokens = words({4, 5});
  const auto target = (tokens * 3 + 1).remainder(11).reshape({-1});
  const auto train = [&](PlainNetwork network, const at::Tensor& input) {
    torch::optim::SGD optimizer(network->parameters(), torch::optim::SGDOptions(0.5));
    std::vector<double> values;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const auto loss = torch::nn::functional::cross_entropy(network(input).flatten(0, 1), target);
      loss.backward();
      values.push_back(loss.item<double>());
      values.push_back(nn::clip_grad_norm(network->parameters(), 0.3));
      optimizer.step();
    }
    return values;
  };
  PlainNetwork plain;
  fill(*plain);
  const auto expected = train(plain, tokens);
  for (const auto& mesh : meshes_of(world)) {
    PlainNetwork network;
    fill(*network);
    parallelize_module(*network, mesh,
                       {{"embedding", ColwiseParallel{}},
                        {"fc1", ColwiseParallel{}},
                        {"fc2", RowwiseParallel{}},
                        {"head", ColwiseParallel{}}},
                       {.activations = Activations::distributed, .mesh_dim = "tp"});
    expect_near(train(network, distribute_tensor(tokens, mesh, batch_placements(mesh))), expected);
    expect_same_state(*network, *plain);
  }
}

}  // namespace tessera::test
