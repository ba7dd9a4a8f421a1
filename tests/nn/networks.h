#pragma once

#include <functional>
#include <vector>

#include <torch/torch.h>

#include "tessera/comm/device_mesh.h"
#include "tessera/nn/hooked.h"

namespace tessera::test {

/// The holder itself: `Plain<torch::nn::Linear>` is a `torch::nn::Linear`.
template <typename Holder>
using Plain = Holder;

/// A small language model without attention: embedding, norm, two layers with a residual, and a head.
/// Sizes are such that nothing is even.
template <template <typename> class With>
struct NetworkImpl : torch::nn::Module {
  With<torch::nn::Embedding> embedding{nullptr};
  With<torch::nn::LayerNorm> norm{nullptr};
  With<torch::nn::Linear> fc1{nullptr};
  With<torch::nn::Linear> fc2{nullptr};
  With<torch::nn::Linear> head{nullptr};

  NetworkImpl() {
    embedding = register_module("embedding", With<torch::nn::Embedding>(11, 6));
    norm = register_module("norm", With<torch::nn::LayerNorm>(torch::nn::LayerNormOptions({6})));
    fc1 = register_module("fc1", With<torch::nn::Linear>(6, 10));
    fc2 = register_module("fc2", With<torch::nn::Linear>(10, 6));
    head = register_module("head", With<torch::nn::Linear>(6, 11));
  }

  at::Tensor forward(const at::Tensor& tokens) {
    const auto x = embedding(tokens);
    return head(x + fc2(torch::gelu(fc1(norm(x)))));
  }
};
using PlainNetwork = torch::nn::ModuleHolder<NetworkImpl<Plain>>;
using HookedNetwork = torch::nn::ModuleHolder<NetworkImpl<nn::Hooked>>;

/// Values that are the same everywhere.
at::Tensor waves(const std::vector<std::int64_t>& sizes, double step = 0.37);
/// Word numbers below 11.
at::Tensor words(const std::vector<std::int64_t>& sizes);
/// Gives every parameter and floating-point buffer such values, in double precision.
void fill(torch::nn::Module& module);

/// All meshes that the world's ranks can form: one dim called "tp", and [dp=2, tp=2] for four.
std::vector<DeviceMesh> meshes_of(const World& world);

/// Returns the losses of some steps of an optimizer.
std::vector<double> losses_of(torch::optim::Optimizer& optimizer,
                              const std::function<at::Tensor()>& loss_fn, int steps = 3);

/// Expects the same parameters and buffers in both, wherever they are.
void expect_same_state(torch::nn::Module& module, torch::nn::Module& expected);
/// Expects the same losses.
void expect_near(const std::vector<double>& losses, const std::vector<double>& expected);

}  // namespace tessera::test
