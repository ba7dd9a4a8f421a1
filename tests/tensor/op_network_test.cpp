#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/op_arguments.h"
#include "tensor/op_tables.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;

/// [n.., c], weight and bias of the last dims; numbers: how many of them.
OpArguments of_layer_norm(Random& random) {
  Shape shape = full_shape(random, 1, 4);
  if (random.one_in(8)) shape.front() = 0;
  const auto count = random.between(1, std::min<std::int64_t>(2, std::ssize(shape)));
  const Shape inner(shape.end() - count, shape.end());
  return {{doubles(random, shape), doubles(random, inner), doubles(random, inner)}, {count}};
}

std::vector<std::int64_t> last_sizes(const at::Tensor& tensor, std::int64_t count) {
  return tensor.sizes().slice(static_cast<std::size_t>(tensor.dim() - count)).vec();
}

/// [n, c, s..], weight and bias of c; numbers: a divisor of c.
OpArguments of_channels(Random& random) {
  const auto groups = random.between(1, 3);
  const auto channels = groups * random.between(1, 3);
  Shape shape = {full_size(random), channels};
  for (std::int64_t i = 0; i < random.between(0, 2); ++i) shape.push_back(random.between(1, 4));
  return {{doubles(random, shape), doubles(random, {channels}), doubles(random, {channels}),
           doubles(random, {channels}), doubles(random, {channels}).abs() + 0.5},
          {groups}};
}

const std::vector<OpEntry>& normalisations() {
  static const std::vector<OpEntry> table = {
      {"batch_norm_eval", of_channels,
       [](A a) {
         return R{at::batch_norm(a[0], a[1], a[2], a[3].detach(), a[4].detach(), false, 0.1, 1e-5,
                                 false)};
       }},
      {"batch_norm_plain", of_channels,
       [](A a) { return R{at::batch_norm(a[0], {}, {}, {}, {}, true, 0.1, 1e-5, false)}; }},
      {"batch_norm_train", of_channels,
       [](A a) {
         const auto mean = a[3].detach().clone();
         const auto variance = a[4].detach().clone();
         const auto y = at::batch_norm(a[0], a[1], a[2], mean, variance, true, 0.1, 1e-5, false);
         return R{y, mean, variance};
       }},
      {"group_norm", of_channels,
       [](A a) { return R{at::group_norm(a[0], a.number(0), a[1], a[2])}; }},
      {"group_norm_plain", of_channels, [](A a) { return R{at::group_norm(a[0], a.number(0))}; }},
      {"instance_norm", of_channels,
       [](A a) {
         return R{at::instance_norm(a[0].unsqueeze(-1).expand_as(a[0].unsqueeze(-1)), a[1], a[2],
                                    {}, {}, true, 0.1, 1e-3, false)};
       }},
      {"layer_norm", of_layer_norm,
       [](A a) { return R{at::layer_norm(a[0], last_sizes(a[0], a.number(0)), a[1], a[2])}; }},
      {"layer_norm_plain", of_layer_norm,
       [](A a) { return R{at::layer_norm(a[0], last_sizes(a[0], a.number(0)))}; }},
      {"local_response_norm", of_channels,
       [](A a) {
         namespace F = torch::nn::functional;
         return R{F::local_response_norm(a[0].reshape({a[0].size(0), a[0].size(1), -1}),
                                         F::LocalResponseNormFuncOptions(2))};
       }},
      {"normalize", one_full,
       [](A a) {
         namespace F = torch::nn::functional;
         return R{F::normalize(a[0].reshape({-1, 1}), F::NormalizeFuncOptions().p(2).dim(0))};
       }},
      {"rms_norm", of_layer_norm,
       [](A a) { return R{at::rms_norm(a[0], last_sizes(a[0], a.number(0)), a[1])}; }},
      {"weight_norm", of_layer_norm,
       [](A a) {
         const auto norm = a[0].reshape({a[0].size(0), -1}).norm(2, {1}, true);
         return R{a[0].reshape({a[0].size(0), -1}) / (norm + 1)};
       }},
  };
  return table;
}

/// query, key, value of [b, h, s, d], and a mask of [q, k].
OpArguments of_attention(Random& random) {
  const auto b = full_size(random), h = random.between(1, 4), q = full_size(random),
             k = full_size(random), d = random.between(1, 4);
  return {{doubles(random, {b, h, q, d}), doubles(random, {b, h, k, d}),
           doubles(random, {b, h, k, d}), doubles(random, broadcastable(random, {b, h, q, k}))}};
}

/// Fewer heads for keys and values than for queries.
OpArguments of_grouped_attention(Random& random) {
  const auto b = full_size(random), h = random.between(1, 2), q = full_size(random),
             k = full_size(random), d = random.between(1, 4);
  return {{doubles(random, {b, 2 * h, q, d}), doubles(random, {b, h, k, d}),
           doubles(random, {b, h, k, d})}};
}

/// [b, s, e] with e = heads * size, and the weights of one block; numbers: heads.
OpArguments of_block(Random& random) {
  const auto heads = random.between(1, 3), size = random.between(1, 3);
  const auto e = heads * size;
  return {{doubles(random, {full_size(random), full_size(random), e}), doubles(random, {3 * e, e}),
           doubles(random, {3 * e}), doubles(random, {e, e}), doubles(random, {e})},
          {heads}};
}

R attention_block(A a) {
  const auto b = a[0].size(0), s = a[0].size(1), e = a[0].size(2), heads = a.number(0);
  const auto projected = at::linear(a[0], a[1], a[2]).chunk(3, -1);
  const auto split = [&](const at::Tensor& x) {
    return x.reshape({b, s, heads, e / heads}).transpose(1, 2);
  };
  const auto mixed = at::scaled_dot_product_attention(split(projected[0]), split(projected[1]),
                                                      split(projected[2]), {}, 0, true);
  return {at::linear(mixed.transpose(1, 2).reshape({b, s, e}), a[3], a[4])};
}

R written_out_attention(A a) {
  const auto scores = at::matmul(a[0], a[1].transpose(-2, -1)) / 2;
  return {at::matmul(at::softmax(scores + a[3], -1), a[2])};
}

const std::vector<OpEntry>& attentions() {
  static const std::vector<OpEntry> table = {
      {"attention", of_attention,
       [](A a) { return R{at::scaled_dot_product_attention(a[0], a[1], a[2])}; }},
      {"attention_block", of_block, attention_block},
      {"attention_causal", of_attention,
       [](A a) { return R{at::scaled_dot_product_attention(a[0], a[1], a[2], {}, 0, true)}; }},
      {"attention_grouped", of_grouped_attention,
       [](A a) {
         return R{
             at::scaled_dot_product_attention(a[0], a[1], a[2], {}, 0, false, std::nullopt, true)};
       }},
      {"attention_mask", of_attention,
       [](A a) { return R{at::scaled_dot_product_attention(a[0], a[1], a[2], a[3])}; }},
      {"attention_scaled", of_attention,
       [](A a) {
         return R{at::scaled_dot_product_attention(a[0], a[1], a[2], {}, 0, false, 0.3)};
       }},
      {"written_out", of_attention, written_out_attention},
  };
  return table;
}

/// input [n, c, s..], weight [o, c / groups, k..], bias [o]; numbers: groups, stride, padding.
OpArguments of_convolution(Random& random, std::int64_t spatial, bool is_transposed = false) {
  const auto groups = random.one_in(3) ? 2 : 1;
  const auto in = groups * random.between(1, 3), out = groups * random.between(1, 3);
  Shape input = {random.one_in(12) ? 0 : full_size(random), in};
  Shape weight = is_transposed ? Shape{in, out / groups} : Shape{out, in / groups};
  for (std::int64_t i = 0; i < spatial; ++i) {
    input.push_back(random.between(3, 5));
    weight.push_back(random.between(1, 3));
  }
  return {{doubles(random, input), doubles(random, weight), doubles(random, {out})},
          {groups, random.between(1, 2), random.between(0, 1)}};
}

OpArguments of_conv1d(Random& random) { return of_convolution(random, 1); }
OpArguments of_conv2d(Random& random) { return of_convolution(random, 2); }
OpArguments of_conv3d(Random& random) { return of_convolution(random, 3); }
OpArguments of_conv_transpose1d(Random& random) { return of_convolution(random, 1, true); }
OpArguments of_conv_transpose2d(Random& random) { return of_convolution(random, 2, true); }

const std::vector<OpEntry>& convolutions() {
  static const std::vector<OpEntry> table = {
      {"conv1d", of_conv1d,
       [](A a) {
         return R{at::conv1d(a[0], a[1], a[2], a.number(1), a.number(2), 1, a.number(0))};
       }},
      {"conv1d_plain", of_conv1d,
       [](A a) { return R{at::conv1d(a[0], a[1], {}, 1, a.number(2), 1, a.number(0))}; }},
      {"conv2d", of_conv2d,
       [](A a) {
         return R{at::conv2d(a[0], a[1], a[2], a.number(1), a.number(2), 1, a.number(0))};
       }},
      {"conv2d_dilated", of_conv2d,
       [](A a) { return R{at::conv2d(a[0], a[1], a[2], 1, 2, 2, a.number(0))}; }},
      {"conv2d_plain", of_conv2d,
       [](A a) { return R{at::conv2d(a[0], a[1], {}, a.number(1), a.number(2), 1, a.number(0))}; }},
      {"conv2d_relu_pool", of_conv2d,
       [](A a) {
         return R{at::max_pool2d(at::conv2d(a[0], a[1], a[2], 1, 1, 1, a.number(0)).relu(), 2)};
       }},
      {"conv3d", of_conv3d,
       [](A a) {
         return R{at::conv3d(a[0], a[1], a[2], a.number(1), a.number(2), 1, a.number(0))};
       }},
      {"conv_transpose1d", of_conv_transpose1d,
       [](A a) {
         return R{at::conv_transpose1d(a[0], a[1], a[2], a.number(1), 0, 0, a.number(0))};
       }},
      {"conv_transpose2d", of_conv_transpose2d,
       [](A a) {
         return R{at::conv_transpose2d(a[0], a[1], a[2], a.number(1), 0, 0, a.number(0))};
       }},
  };
  return table;
}

OpArguments of_image(Random& random, std::int64_t spatial) {
  Shape shape = {full_size(random), full_size(random)};
  for (std::int64_t i = 0; i < spatial; ++i) shape.push_back(random.between(2, 5));
  return {{doubles(random, shape)}, {random.between(1, 2), random.between(1, 2)}};
}
OpArguments of_line(Random& random) { return of_image(random, 1); }
OpArguments of_picture(Random& random) { return of_image(random, 2); }
OpArguments of_volume(Random& random) { return of_image(random, 3); }

OpArguments of_grid(Random& random) {
  const auto n = full_size(random);
  return {{doubles(random, {n, full_size(random), 4, 3}),
           doubles(random, {n, random.between(1, 4), random.between(1, 4), 2}) * 0.4}};
}

const std::vector<OpEntry>& pools() {
  static const std::vector<OpEntry> table = {
      {"adaptive_avg_pool1d", of_line, [](A a) { return R{at::adaptive_avg_pool1d(a[0], 2)}; }},
      {"adaptive_avg_pool2d", of_picture,
       [](A a) {
         return R{at::adaptive_avg_pool2d(a[0], {a.number(0), 2})};
       }},
      {"adaptive_avg_pool3d", of_volume,
       [](A a) {
         return R{at::adaptive_avg_pool3d(a[0], {a.number(0), 1, 2})};
       }},
      {"adaptive_max_pool1d", of_line,
       [](A a) { return R{std::get<0>(at::adaptive_max_pool1d(a[0], 2))}; }},
      {"adaptive_max_pool2d", of_picture,
       [](A a) {
         return R{std::get<0>(at::adaptive_max_pool2d(a[0], {a.number(0), 2}))};
       }},
      {"avg_pool1d", of_line, [](A a) { return R{at::avg_pool1d(a[0], 2, a.number(0))}; }},
      {"avg_pool2d", of_picture, [](A a) { return R{at::avg_pool2d(a[0], 2, a.number(0))}; }},
      {"avg_pool3d", of_volume, [](A a) { return R{at::avg_pool3d(a[0], 2, a.number(0))}; }},
      {"bicubic", of_picture,
       [](A a) {
         return R{at::upsample_bicubic2d(a[0], at::IntArrayRef({6, 7}), false)};
       }},
      {"bilinear", of_picture,
       [](A a) {
         return R{at::upsample_bilinear2d(a[0], at::IntArrayRef({6, 7}), a.flag(0))};
       }},
      {"fold", of_line,
       [](A a) {
         return R{at::col2im(at::im2col(a[0].unsqueeze(-1), {2, 1}, {1, 1}, {0, 0}, {1, 1}),
                             {a[0].size(2), 1}, {2, 1}, {1, 1}, {0, 0}, {1, 1})};
       }},
      {"grid_sample", of_grid, [](A a) { return R{at::grid_sampler(a[0], a[1], 0, 0, false)}; }},
      {"im2col", of_picture,
       [](A a) {
         return R{at::im2col(a[0], {2, 2}, {1, 1}, {0, 0}, {1, 1})};
       }},
      {"linear", of_line,
       [](A a) { return R{at::upsample_linear1d(a[0], at::IntArrayRef({7}), true)}; }},
      {"max_pool1d", of_line, [](A a) { return R{at::max_pool1d(a[0], 2, a.number(0))}; }},
      {"max_pool2d", of_picture,
       [](A a) {
         return R{at::max_pool2d(a[0], {2, a.number(1)}, a.number(0))};
       }},
      {"max_pool2d_indices", of_picture,
       [](A a) {
         const auto [y, where] = at::max_pool2d_with_indices(a[0], 2, a.number(0));
         return R{y, where};
       }},
      {"max_pool3d", of_volume, [](A a) { return R{at::max_pool3d(a[0], 2, a.number(0))}; }},
      {"max_unpool2d", of_picture,
       [](A a) {
         const auto [y, where] = at::max_pool2d_with_indices(a[0], 2);
         return R{at::max_unpool2d(y, where, {a[0].size(2), a[0].size(3)})};
       }},
      {"max_unpool3d", of_volume,
       [](A a) {
         const auto [y, where] = at::max_pool3d_with_indices(a[0], 2);
         return R{at::max_unpool3d(y, where, {a[0].size(2), a[0].size(3), a[0].size(4)}, {2, 2, 2},
                                   {0, 0, 0})};
       }},
      {"nearest1d", of_line,
       [](A a) { return R{at::upsample_nearest1d(a[0], at::IntArrayRef({7}))}; }},
      {"nearest2d", of_picture,
       [](A a) {
         return R{at::upsample_nearest2d(a[0], at::IntArrayRef({6, 7}))};
       }},
      {"nearest3d", of_volume,
       [](A a) {
         return R{at::upsample_nearest3d(a[0], at::IntArrayRef({4, 5, 6}))};
       }},
      {"trilinear", of_volume,
       [](A a) {
         return R{at::upsample_trilinear3d(a[0], at::IntArrayRef({4, 5, 6}), false)};
       }},
  };
  return table;
}

TEST(OpSweepTest, Normalisation) { check_family("norm", normalisations(), 40); }
TEST(OpSweepTest, Attention) { check_family("attention", attentions(), 40); }
TEST(OpSweepTest, Convolution) { check_family("convolution", convolutions(), 40); }
TEST(OpSweepTest, Pooling) { check_family("pool", pools(), 30); }

}  // namespace

const std::vector<OpEntry>& norm_table() { return normalisations(); }
const std::vector<OpEntry>& attention_table() { return attentions(); }
const std::vector<OpEntry>& convolution_table() { return convolutions(); }
const std::vector<OpEntry>& pool_table() { return pools(); }

}  // namespace tessera::test
