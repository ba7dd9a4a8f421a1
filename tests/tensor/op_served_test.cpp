// What networks and optimizers use must be served by rules: the fallback is right, but moves everything.

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/op_outcome.h"
#include "tensor/op_tables.h"
#include "tessera/base/concat.h"
#include "tessera/tensor/fallback_log.h"

namespace tessera::test {
namespace {

struct Family {
  std::string name;
  const std::vector<OpEntry>& entries;
};

bool has_empty(const Case& tested) {
  return std::any_of(tested.arguments.tensors.begin(), tested.arguments.tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.numel() == 0; });
}

/// The cases that count: libtorch accepts the arguments, and none of them is empty.
std::vector<Case> cases_of(const Family& family, const std::string& op, std::int64_t ranks) {
  constexpr std::uint64_t kSeeds = 12;
  const auto found = std::find_if(family.entries.begin(), family.entries.end(),
                                  [&](const OpEntry& entry) { return entry.name == op; });
  EXPECT_NE(found, family.entries.end()) << family.name << " has no " << op;
  std::vector<Case> cases;
  for (std::uint64_t seed = 0; found != family.entries.end() && seed < kSeeds; ++seed) {
    Case made = make_case(family.name, *found, seed, ranks);
    made.twice = false;
    if (has_empty(made)) continue;
    expect(made);
    if (!made.expected.error) cases.push_back(std::move(made));
  }
  EXPECT_FALSE(cases.empty()) << family.name << '/' << op;
  return cases;
}

/// The ops of a case that no rule served; the same on all ranks.
std::set<std::string> fallbacks_of(const Case& tested, const DeviceMesh& mesh) {
  const auto leaves = distributed_leaves(tested, mesh);
  const detail::FallbackLog log;
  (void)distributed_outcome(tested, mesh, leaves);
  return {log.ops().begin(), log.ops().end()};
}

void expect_served(const Family& family, const std::vector<std::string>& ops) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    std::vector<Case> cases;
    for (const auto& op : ops) {
      for (auto& made : cases_of(family, op, ranks)) cases.push_back(std::move(made));
    }
    run_ranks(
        ranks,
        [&](World& world) {
          std::vector<DeviceMesh> meshes;
          for (const auto& sizes : mesh_sizes(ranks)) {
            meshes.push_back(init_device_mesh("cpu", sizes));
          }
          for (const auto& tested : cases) {
            const auto missing = fallbacks_of(tested, meshes[tested.mesh]);
            if (world.rank() != 0 || missing.empty()) continue;
            ADD_FAILURE() << describe_case(tested) << "no rule for "
                          << joined(std::vector<std::string>(missing.begin(), missing.end()));
          }
        },
        test_options());
  }
}

TEST(OpServedTest, Products) {
  expect_served({"matmul", matmul_table()},
                {"addmm", "baddbmm", "bmm", "einsum_heads", "linear", "linear_bias", "matmul", "mm",
                 "mm_transposed", "mv", "outer"});
}

TEST(OpServedTest, ElementWise) {
  expect_served(
      {"binary", pointwise_table()},
      {"add", "addcdiv", "addcmul", "divide", "eq", "greater", "lerp_number", "masked_fill",
       "maximum", "multiply", "pow_tensor", "subtract", "type_promotion", "where"});
  expect_served({"unary", unary_table()}, {"abs",         "add_number",
                                           "clamp",       "exp",
                                           "gelu",        "gelu_tanh",
                                           "hardsigmoid", "hardswish",
                                           "hardtanh",    "leaky_relu",
                                           "log",         "log_sigmoid",
                                           "mish",        "multiply_number",
                                           "neg",         "pow_number",
                                           "reciprocal",  "relu",
                                           "relu6",       "rsqrt",
                                           "sigmoid",     "silu",
                                           "softplus",    "sqrt",
                                           "square",      "tanh",
                                           "to_float"});
}

TEST(OpServedTest, Reductions) {
  expect_served({"reduction", reduction_table()},
                {"amax", "argmax_dim", "max_dim", "mean", "mean_dims", "norm_2", "std_dims", "sum",
                 "sum_dims", "var_mean"});
}

TEST(OpServedTest, SoftmaxScansAndSorting) {
  expect_served({"scan", scan_table()},
                {"cumsum", "log_softmax", "softmax", "softmax_dtype", "sort", "topk"});
}

TEST(OpServedTest, Joins) { expect_served({"join", join_table()}, {"cat", "stack"}); }

TEST(OpServedTest, RandomNumbers) {
  expect_served({"random", random_table()},
                {"bernoulli_", "dropout", "feature_dropout", "normal_", "uniform_"});
}

TEST(OpServedTest, Views) {
  expect_served(
      {"view", view_table()},
      {"chunk", "expand", "flatten", "narrow", "pad_constant", "permute", "reshape", "select",
       "slice", "split", "squeeze_dim", "transpose", "tril", "unbind", "unsqueeze", "view"});
}

TEST(OpServedTest, Indices) {
  expect_served({"index", index_table()}, {"gather", "index_first", "index_pairs", "index_put_rows",
                                           "index_select", "scatter_add"});
}

TEST(OpServedTest, Embeddings) {
  expect_served({"embedding", embedding_table()},
                {"embedding", "embedding_padding", "one_hot", "one_hot_times", "tied"});
}

TEST(OpServedTest, Normalisation) {
  expect_served({"norm", norm_table()},
                {"batch_norm_eval", "batch_norm_plain", "batch_norm_train", "group_norm",
                 "instance_norm", "layer_norm", "layer_norm_plain", "rms_norm"});
}

TEST(OpServedTest, Attention) {
  expect_served({"attention", attention_table()},
                {"attention", "attention_block", "attention_causal", "attention_grouped",
                 "attention_mask", "attention_scaled", "written_out"});
}

TEST(OpServedTest, Convolutions) {
  expect_served({"convolution", convolution_table()},
                {"conv1d", "conv1d_plain", "conv2d", "conv2d_dilated", "conv2d_plain",
                 "conv2d_relu_pool", "conv3d", "conv_transpose1d", "conv_transpose2d"});
}

TEST(OpServedTest, Pooling) {
  expect_served({"pool", pool_table()},
                {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool1d",
                 "avg_pool2d", "avg_pool3d", "bicubic", "bilinear", "max_pool1d", "max_pool2d",
                 "max_pool3d", "nearest2d"});
}

TEST(OpServedTest, Losses) {
  expect_served(
      {"loss", loss_table()},
      {"binary_cross_entropy", "binary_cross_entropy_logits", "cross_entropy",
       "cross_entropy_ignored", "cross_entropy_pixels", "cross_entropy_smoothed",
       "cross_entropy_weight", "huber", "kl_div", "l1", "mse", "nll", "nll_weight", "smooth_l1"});
}

TEST(OpServedTest, Optimizers) {
  expect_served({"list", list_table()},
                {"clip_grad_norm", "foreach_add", "foreach_addcdiv_", "foreach_addcmul_",
                 "foreach_lerp_", "foreach_norm", "foreach_sqrt", "fused_adamw", "fused_sgd",
                 "optim_adagrad", "optim_adam", "optim_adamw", "optim_rmsprop", "optim_sgd"});
}

}  // namespace
}  // namespace tessera::test
