#pragma once

#include <cstdint>
#include <vector>

#include <tessera/nn/hooked.h>

#include <torch/torch.h>

/// \file
/// A small GPT in plain libtorch: nothing here knows of meshes or ranks. `styles.h` spreads it. Members
/// of type `Hooked` are where sequence parallel changes layouts between modules; without hooks they
/// are the modules that they name.

namespace gpt {

using tessera::nn::Hooked;

struct Config {
  std::int64_t vocabulary = 64;
  /// Positions that attention can look back.
  std::int64_t context = 64;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t layers = 2;
  double dropout = 0.1;
};

/// Causal attention over several heads.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const Config& config);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  std::int64_t heads_;
  torch::nn::Linear query_ = nullptr;
  torch::nn::Linear key_ = nullptr;
  torch::nn::Linear value_ = nullptr;
  Hooked<torch::nn::Linear> output_ = nullptr;
  torch::nn::Dropout dropout_ = nullptr;
};
TORCH_MODULE(Attention);

class MlpImpl : public torch::nn::Module {
 public:
  explicit MlpImpl(const Config& config);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::nn::Linear up_ = nullptr;
  Hooked<torch::nn::Linear> down_ = nullptr;
  torch::nn::Dropout dropout_ = nullptr;
};
TORCH_MODULE(Mlp);

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const Config& config);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::nn::LayerNorm attention_norm_ = nullptr;
  Hooked<Attention> attention_ = nullptr;
  torch::nn::LayerNorm mlp_norm_ = nullptr;
  Hooked<Mlp> mlp_ = nullptr;
};
TORCH_MODULE(Block);

/// Tokens in, logits out: [batch, time] -> [batch, time, vocabulary]. The output layer is the token
/// embedding again.
class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const Config& config);
  torch::Tensor forward(const torch::Tensor& tokens);

  /// Draws the initial values: normally distributed weights, biases 0, norms 1.
  void reset_parameters();

 private:
  Config config_;
  torch::nn::Embedding tokens_ = nullptr;
  torch::nn::Embedding positions_ = nullptr;
  torch::Tensor places_;
  Hooked<torch::nn::Dropout> dropout_ = nullptr;
  torch::nn::ModuleList blocks_ = nullptr;
  torch::nn::LayerNorm norm_ = nullptr;
};
TORCH_MODULE(Gpt);

/// The mean cross entropy of the next token: `targets` are [batch, time].
torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& targets);

}  // namespace gpt
