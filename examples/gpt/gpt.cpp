#include "gpt.h"

#include <cmath>

namespace gpt {

AttentionImpl::AttentionImpl(const Config& config) : heads_(config.heads) {
  query_ = register_module("query", torch::nn::Linear(config.width, config.width));
  key_ = register_module("key", torch::nn::Linear(config.width, config.width));
  value_ = register_module("value", torch::nn::Linear(config.width, config.width));
  output_ = register_module("output", Hooked<torch::nn::Linear>(config.width, config.width));
  dropout_ = register_module("dropout", torch::nn::Dropout(config.dropout));
}

torch::Tensor AttentionImpl::forward(const torch::Tensor& x) {
  const auto by_head = [&](const torch::Tensor& y) {
    return y.view({y.size(0), y.size(1), heads_, -1}).transpose(1, 2);
  };
  const auto seen = torch::scaled_dot_product_attention(
      by_head(query_->forward(x)), by_head(key_->forward(x)), by_head(value_->forward(x)),
      /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
  return dropout_->forward(output_->forward(seen.transpose(1, 2).flatten(2)));
}

MlpImpl::MlpImpl(const Config& config) {
  up_ = register_module("up", torch::nn::Linear(config.width, 4 * config.width));
  down_ = register_module("down", Hooked<torch::nn::Linear>(4 * config.width, config.width));
  dropout_ = register_module("dropout", torch::nn::Dropout(config.dropout));
}

torch::Tensor MlpImpl::forward(const torch::Tensor& x) {
  return dropout_->forward(down_->forward(torch::gelu(up_->forward(x))));
}

BlockImpl::BlockImpl(const Config& config) {
  const torch::nn::LayerNormOptions norm({config.width});
  attention_norm_ = register_module("attention_norm", torch::nn::LayerNorm(norm));
  attention_ = register_module("attention", Hooked<Attention>(config));
  mlp_norm_ = register_module("mlp_norm", torch::nn::LayerNorm(norm));
  mlp_ = register_module("mlp", Hooked<Mlp>(config));
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x) {
  const auto y = x + attention_->forward(attention_norm_->forward(x));
  return y + mlp_->forward(mlp_norm_->forward(y));
}

GptImpl::GptImpl(const Config& config) : config_(config) {
  tokens_ = register_module("tokens", torch::nn::Embedding(config.vocabulary, config.width));
  positions_ = register_module("positions", torch::nn::Embedding(config.context, config.width));
  places_ = register_buffer("places", torch::arange(config.context));
  dropout_ = register_module("dropout", Hooked<torch::nn::Dropout>(config.dropout));
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) blocks_->push_back(Block(config));
  norm_ =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width})));
}

torch::Tensor GptImpl::forward(const torch::Tensor& tokens) {
  const auto places = places_.slice(0, 0, tokens.size(1));
  auto x = dropout_->forward(tokens_->forward(tokens) + positions_->forward(places));
  for (const auto& block : *blocks_) x = block->as<Block>()->forward(x);
  return torch::linear(norm_->forward(x), tokens_->weight);
}

void GptImpl::reset_parameters() {
  const torch::NoGradGuard no_history;
  // Layers that add to the residual begin small, so that its variance does not grow with depth.
  const double added = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.layers));
  for (auto& [name, parameter] : named_parameters().pairs()) {
    const auto ends_in = [&name = name](const std::string& end) {
      return name.size() >= end.size() && name.ends_with(end);
    };
    if (ends_in("bias")) {
      parameter.zero_();
    } else if (ends_in("norm.weight")) {
      parameter.fill_(1.0);
    } else {
      const bool adds = ends_in("attention.output.weight") || ends_in("mlp.down.weight");
      parameter.normal_(0.0, adds ? added : 0.02);
    }
  }
}

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

}  // namespace gpt
