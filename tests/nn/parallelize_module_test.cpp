#include "tessera/nn/parallelize_module.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "nn/networks.h"
#include "nn/parallel_cases.h"
#include "support/rank_test.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/in_place.h"
#include "tessera/tensor/strict_mode.h"

namespace tessera::nn {
namespace {

using test::expect_near;
using test::expect_same_state;
using test::fill;
using test::HookedNetwork;
using test::losses_of;
using test::on_every_rank_count;
using test::PlainNetwork;
using test::words;
using testing::HasSubstr;

at::Tensor loss_of(const at::Tensor& logits) {
  return torch::log_softmax(logits, -1).pow(2).mean();
}

TEST(ParallelizeModuleTest, HookedModulesTakeAndGivePlainTensors) {
  on_every_rank_count(test::check_plain_activations);
}

TEST(ParallelizeModuleTest, UnmodifiedModulesWorkOnDistributedActivations) {
  on_every_rank_count(test::check_distributed_activations);
}

TEST(ParallelizeModuleTest, SequenceParallelWorksOnCutSequences) {
  on_every_rank_count(test::check_sequence_parallel);
}

TEST(ParallelizeModuleTest, CutLossesAndClippedGradientsTrainAsOnPlainTensors) {
  on_every_rank_count(test::check_loss_and_clipping);
}

TEST(ParallelizeModuleTest, OptimizerStateIsPlacedLikeItsParameter) {
  on_every_rank_count([](World& world) {
    for (const auto& mesh : test::meshes_of(world)) {
      PlainNetwork network;
      fill(*network);
      torch::optim::AdamW optimizer(network->parameters(), torch::optim::AdamWOptions(1e-2));
      parallelize_module(*network, mesh,
                         {{"embedding", RowwiseParallel{}},
                          {"fc1", ColwiseParallel{}},
                          {"fc2", RowwiseParallel{}}},
                         {.activations = Activations::distributed, .mesh_dim = "tp"});
      const auto tokens = distribute_tensor(
          words({4, 5}), mesh, Placements(static_cast<std::size_t>(mesh.ndim()), Replicate()));
      losses_of(
          optimizer, [&] { return loss_of(network(tokens)); }, 1);
      for (const auto& parameter : network->parameters()) {
        const auto& state = static_cast<const torch::optim::AdamWParamState&>(
            *optimizer.state().at(parameter.unsafeGetTensorImpl()));
        EXPECT_EQ(layout_of(state.exp_avg()), layout_of(parameter));
        EXPECT_EQ(layout_of(state.exp_avg_sq()), layout_of(parameter));
      }
    }
  });
}

TEST(ParallelizeModuleTest, PairsOfLayersCommunicateOncePerDirection) {
  EXPECT_NO_THROW(run_ranks(2, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2}, {"tp"});
    HookedNetwork network;
    fill(*network);
    parallelize_module(*network, mesh, {{"fc1", ColwiseParallel{}}, {"fc2", RowwiseParallel{}}});
    const auto x = test::waves({4, 5, 6}).requires_grad_();
    CommDebugMode forward;
    CommDebugMode backward;
    at::Tensor y;
    {
      const auto scope = forward.record();
      y = network->fc2(torch::gelu(network->fc1(x)));
    }
    {
      const auto scope = backward.record();
      y.sum().backward();
    }
    EXPECT_EQ(forward.total_count(), 1) << forward.table();
    EXPECT_EQ(backward.total_count(), 1) << backward.table();
  }));
}

TEST(ParallelizeModuleTest, PrepareModulePlacesInputsAndOutputs) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    Hooked<torch::nn::Bilinear> bilinear(3, 4, 5);
    fill(*bilinear);
    const auto x = test::waves({6, 3});
    const auto y = test::waves({6, 4}, 0.2);
    const auto expected = bilinear(x, y).detach();
    parallelize_module(*bilinear, mesh,
                       {{"", PrepareModuleInput{.input_layouts = {Replicate(), std::nullopt},
                                                .desired_input_layouts = {Shard(0), std::nullopt},
                                                .use_local_output = false}},
                        {"", PrepareModuleOutput{.output_layouts = {Shard(0)},
                                                 .desired_output_layouts = {Replicate()}}}});
    for (const auto& parameter : bilinear->parameters()) {
      distribute_in_place(parameter, mesh, {Replicate()});
    }
    const auto result = bilinear(x, distribute_tensor(y, mesh, {Shard(0)}));
    EXPECT_FALSE(is_dtensor(result));
    EXPECT_TRUE(torch::allclose(result, expected));
  });
}

TEST(ParallelizeModuleTest, PlainElementsOfASequentialTakePart) {
  on_every_rank_count([](World& world) {
    const auto make = [] {
      torch::nn::Sequential layers(torch::nn::Linear(5, 7), torch::nn::GELU(),
                                   torch::nn::Linear(7, 5));
      fill(*layers);
      return layers;
    };
    auto plain = make();
    const auto x = test::waves({4, 5});
    torch::optim::AdamW plain_optimizer(plain->parameters(), torch::optim::AdamWOptions(1e-2));
    const auto expected =
        losses_of(plain_optimizer, [&] { return plain->forward(x).pow(2).mean(); });
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto layers = make();
    torch::optim::AdamW optimizer(layers->parameters(), torch::optim::AdamWOptions(1e-2));
    parallelize_module(*layers, mesh, {{"0", ColwiseParallel{}}, {"2", RowwiseParallel{}}});
    expect_near(losses_of(optimizer, [&] { return layers->forward(x).pow(2).mean(); }), expected);
    expect_same_state(*layers, *plain);
  });
}

TEST(ParallelizeModuleTest, AnEmbeddingIsCutByItsColumns) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    Hooked<torch::nn::Embedding> embedding(11, 6);
    fill(*embedding);
    const auto expected = embedding(words({2, 3})).detach();
    parallelize_module(*embedding, mesh, ColwiseParallel{});
    EXPECT_EQ(placements_of(embedding->weight), Placements{Shard(1)});
    const auto part = embedding(words({2, 3}));
    EXPECT_FALSE(is_dtensor(part));
    EXPECT_TRUE(torch::equal(full_tensor(from_local(part, mesh, {Shard(2)})).detach(), expected));
  });
}

TEST(ParallelizeModuleTest, SequenceParallelTakesPiecesOfSequences) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    Hooked<torch::nn::LayerNorm> norm(torch::nn::LayerNormOptions({6}));
    fill(*norm);
    const auto x = test::waves({5, 2, 6});
    const auto expected = norm(x).detach();
    parallelize_module(*norm, mesh, SequenceParallel{.sequence_dim = 0, .use_local_output = true});
    const auto piece = to_local(distribute_tensor(x, mesh, {Shard(0)}));
    const auto part = norm(piece);
    EXPECT_EQ(part.sizes(), piece.sizes());
    EXPECT_TRUE(
        torch::allclose(full_tensor(from_local(part, mesh, {Shard(0)})).detach(), expected));
  });
}

TEST(ParallelizeModuleTest, InputsAndOutputsArePreparedTogether) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    Hooked<torch::nn::ReLU> relu;
    Placements seen;
    parallelize_module(
        *relu, mesh,
        PrepareModuleInputOutput{
            .input = {.input_layouts = {Replicate()}, .desired_input_layouts = {Shard(0)}},
            .output = {.output_layouts = {Shard(0)}, .desired_output_layouts = {Replicate()}}});
    relu->add_forward_pre_hook(
        [&](torch::nn::Module&, TensorLeaves inputs) { seen = placements_of(*inputs[0]); });
    const auto x = test::waves({5, 2});
    EXPECT_TRUE(torch::equal(relu(x), torch::relu(x)));
    EXPECT_EQ(seen, Placements{Shard(0)});
  });
}

/// Several layers with the same input.
struct FanImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};

  FanImpl() {
    first = register_module("first", torch::nn::Linear(6, 4));
    second = register_module("second", torch::nn::Linear(6, 4));
  }

  at::Tensor forward(const at::Tensor& x) { return first(x) * second(x); }
};
TORCH_MODULE(Fan);

TEST(ParallelizeModuleTest, GradientsOfPreparedInputsAreReducedOnce) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    Fan plain;
    fill(*plain);
    const auto x = test::waves({5, 6}).requires_grad_();
    plain(x * 2).sum().backward();
    Hooked<Fan> fan;
    fill(*fan);
    parallelize_module(*fan, mesh,
                       {{"", PrepareModuleInput{.input_layouts = {Replicate()},
                                                .desired_input_layouts = {Replicate()}}},
                        {"first", ColwiseParallel{}},
                        {"second", ColwiseParallel{}}},
                       {.activations = Activations::distributed});
    const auto input = distribute_tensor(x.detach(), mesh, {Replicate()}).requires_grad_();
    const auto doubled = input * 2;
    Placements seen;
    doubled.register_hook([&](const at::Tensor& gradient) { seen = placements_of(gradient); });
    const auto loss = fan(doubled).sum();
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      loss.backward();
    }
    EXPECT_EQ(seen, Placements{Replicate()});
    EXPECT_LE(traffic.total_count(), 1) << traffic.table();
    EXPECT_TRUE(torch::allclose(full_tensor(input.grad()), x.grad()));
  });
}

TEST(ParallelizeModuleTest, TensorsThatCannotCrossAreErrors) {
  EXPECT_THAT(
      test::failure_of(2,
                       [](World&) {
                         const auto mesh = init_device_mesh("cpu", {2});
                         Hooked<torch::nn::Bilinear> bilinear(3, 4, 5);
                         parallelize_module(
                             *bilinear, mesh,
                             PrepareModuleInput{.input_layouts = {Replicate()},
                                                .desired_input_layouts = {Replicate()}});
                         bilinear(torch::ones({2, 3}), torch::ones({2, 4}));
                       }),
      HasSubstr("PrepareModuleInput of the module (torch::nn::Bilinear): 2 tensors come, but "
                "1 layout(s) are given"));
  EXPECT_THAT(test::failure_of(4,
                               [](World&) {
                                 const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
                                 Hooked<torch::nn::Linear> linear(3, 4);
                                 parallelize_module(
                                     *linear, mesh, ColwiseParallel{.input_layouts = Replicate()},
                                     {.activations = Activations::distributed, .mesh_dim = "tp"});
                                 linear(torch::ones({2, 3}));
                               }),
              HasSubstr("whose layout along the other mesh dims nobody knows; pass a DTensor"));
  EXPECT_THAT(test::failure_of(2,
                               [](World&) {
                                 const auto mesh = init_device_mesh("cpu", {2}, {"tp"});
                                 const auto other = init_device_mesh("cpu", {2}, {"dp"});
                                 Hooked<torch::nn::Linear> linear(3, 4);
                                 parallelize_module(*linear, mesh, ColwiseParallel{});
                                 linear(distribute_tensor(torch::ones({2, 3}), other, {Shard(0)}));
                               }),
              HasSubstr("redistribute it to that mesh first"));
}

TEST(ParallelizeModuleTest, ATransformerOfLibtorchWorksUnmodified) {
  on_every_rank_count([](World& world) {
    const auto make = [] {
      torch::nn::TransformerEncoder encoder(torch::nn::TransformerEncoderOptions(
          torch::nn::TransformerEncoderLayer(
              torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(10).dropout(0)),
          2));
      fill(*encoder);
      return encoder;
    };
    auto plain = make();
    const auto x = test::waves({5, 4, 8});
    torch::optim::AdamW plain_optimizer(plain->parameters(), torch::optim::AdamWOptions(1e-2));
    const auto expected = losses_of(
        plain_optimizer, [&] { return plain(x).pow(2).mean(); }, 2);
    for (const auto& mesh : test::meshes_of(world)) {
      auto encoder = make();
      torch::optim::AdamW optimizer(encoder->parameters(), torch::optim::AdamWOptions(1e-2));
      parallelize_module(
          *encoder, mesh,
          {{"layers.*.linear1", ColwiseParallel{}}, {"layers.*.linear2", RowwiseParallel{}}},
          {.activations = Activations::distributed, .mesh_dim = "tp"});
      Placements batch(static_cast<std::size_t>(mesh.ndim()), Replicate());
      if (mesh.ndim() == 2) batch[0] = Shard(1);
      const auto input = distribute_tensor(x, mesh, batch);
      expect_near(losses_of(
                      optimizer, [&] { return encoder(input).pow(2).mean(); }, 2),
                  expected);
      expect_same_state(*encoder, *plain);
    }
  });
}

/// A Linear that has its weight from elsewhere.
struct TiedLinearImpl : torch::nn::LinearImpl {
  explicit TiedLinearImpl(const at::Tensor& tied)
      : torch::nn::LinearImpl(torch::nn::LinearOptions(tied.size(1), tied.size(0)).bias(false)) {
    weight = tied;
    parameters_["weight"] = tied;
  }
};
TORCH_MODULE(TiedLinear);

struct TiedImpl : torch::nn::Module {
  torch::nn::Embedding embedding{nullptr};
  TiedLinear head{nullptr};

  TiedImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(11, 6));
    head = register_module("head", TiedLinear(embedding->weight));
  }
};
TORCH_MODULE(Tied);

TEST(ParallelizeModuleTest, TiedWeightsArePlacedOnce) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    Tied tied;
    parallelize_module(*tied, mesh, {{"embedding", RowwiseParallel{}}, {"head", ColwiseParallel{}}},
                       {.activations = Activations::distributed});
    EXPECT_TRUE(tied->head->weight.is_same(tied->embedding->weight));
    EXPECT_EQ(placements_of(tied->head->weight), Placements{Shard(0)});
    Tied wrong;
    EXPECT_THROW(parallelize_module(*wrong, mesh,
                                    {{"embedding", RowwiseParallel{}}, {"head", RowwiseParallel{}}},
                                    {.activations = Activations::distributed}),
                 InvalidArgument);
    EXPECT_FALSE(is_dtensor(wrong->head->weight));
  });
}

std::string error_of(torch::nn::Module& module, const ParallelPlan& plan,
                     const ParallelizeOptions& options = {}) {
  std::string message;
  run_ranks(1, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {1}, {"tp"});
    try {
      parallelize_module(module, mesh, plan, options);
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      message = error.what();
    }
    for (const auto& parameter : module.parameters()) {
      EXPECT_FALSE(is_dtensor(parameter)) << "nothing may be changed";
    }
  });
  return message;
}

TEST(ParallelizeModuleTest, ErrorsComeBeforeAnythingIsChanged) {
  HookedNetwork network;
  EXPECT_THAT(error_of(*network, {{"fc1", ColwiseParallel{}}, {"fc3", RowwiseParallel{}}}),
              HasSubstr("matches 'fc3'; near ones are 'fc1', 'fc2'"));
  EXPECT_THAT(error_of(*network, {{"layers.*.fc1", ColwiseParallel{}}}),
              HasSubstr("matches 'layers.*.fc1'; near ones are 'fc1'"));
  EXPECT_THAT(error_of(*network, {{"fc1", ColwiseParallel{}}, {"norm", ColwiseParallel{}}}),
              HasSubstr("parallelize_module: ColwiseParallel is for torch::nn::Linear and "
                        "torch::nn::Embedding, and module 'norm' (torch::nn::LayerNorm) is "
                        "neither"));
  EXPECT_THAT(error_of(*network, {{"fc*", ColwiseParallel{}}, {"fc2", RowwiseParallel{}}}),
              HasSubstr("'fc2.weight' would be placed S(0) and 'fc2.weight', the same tensor, "
                        "S(1)"));
  EXPECT_THAT(error_of(*network, {{"fc1", PrepareModuleInput{.input_layouts = {Replicate()}}}}),
              HasSubstr("has 1 input_layouts and 0 desired_input_layouts"));
  EXPECT_THAT(error_of(*network, {{"fc1", ColwiseParallel{}}}, {.mesh_dim = "dp"}),
              HasSubstr("parallelize_module: mesh dim \"dp\" given for DeviceMesh("));
  PlainNetwork plain;
  EXPECT_THAT(error_of(*plain, {{"fc1", ColwiseParallel{}}}),
              HasSubstr("parallelize_module: ColwiseParallel: module 'fc1' (torch::nn::Linear) "
                        "cannot have hooks, because libtorch calls its forward directly; declare "
                        "the member as tessera::nn::Hooked<torch::nn::Linear> (from "
                        "tessera/nn/hooked.h), or put it into a torch::nn::Sequential; styles that "
                        "state no layouts need no hooks with {.activations = "
                        "Activations::distributed}"));
  EXPECT_THAT(error_of(*plain, {{"fc1", ColwiseParallel{.output_layouts = Replicate()}}},
                       {.activations = Activations::distributed}),
              HasSubstr("cannot have hooks"));
}

TEST(ParallelizeModuleTest, TwiceIsAnError) {
  const auto message = test::failure_of(2, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2}, {"tp"});
    HookedNetwork network;
    parallelize_module(*network, mesh, {{"fc1", ColwiseParallel{}}});
    parallelize_module(*network, mesh, {{"fc1", ColwiseParallel{}}});
  });
  EXPECT_THAT(message, HasSubstr("'fc1.weight' is a DTensor already, placed [10,6][S(0)] on"));
}

TEST(ParallelizeModuleTest, AMeshOfSeveralDimsNeedsToKnowWhichOne) {
  const auto message = [](const ParallelizeOptions& options) {
    return test::failure_of(4, [&](World&) {
      PlainNetwork network;
      parallelize_module(*network, init_device_mesh("cpu", {2, 2}, {"dp", "tp"}),
                         {{"fc1", ColwiseParallel{}}}, options);
    });
  };
  EXPECT_THAT(message({}), HasSubstr("pass a mesh of one dim such as mesh[\"tp\"], or "
                                     "{.activations = Activations::distributed}"));
  EXPECT_THAT(message({.activations = Activations::distributed}),
              HasSubstr("has 2 dims; say along which one the styles work"));
}

}  // namespace
}  // namespace tessera::nn
