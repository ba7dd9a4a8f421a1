#include "tessera/nn/clip_grad.h"

#include <limits>

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "nn/networks.h"
#include "support/rank_test.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::nn {
namespace {

using test::on_every_rank_count;
using test::waves;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<at::Tensor> plain_gradients() {
  return {waves({5, 3}), 3 * waves({7}, 0.9), waves({2, 2, 2}, 0.2), waves({}, 0.5), waves({0, 4})};
}

/// Plain parameters with those gradients.
std::vector<at::Tensor> plain_parameters() {
  std::vector<at::Tensor> parameters;
  for (const auto& gradient : plain_gradients()) {
    parameters.push_back(torch::zeros_like(gradient).requires_grad_());
    parameters.back().mutable_grad() = gradient.clone();
  }
  return parameters;
}

at::Tensor placed_parameter(const at::Tensor& gradient, const DeviceMesh& mesh,
                            const Placements& parameter, const Placements& placements) {
  auto result = distribute_tensor(torch::zeros_like(gradient), mesh, parameter).requires_grad_();
  result.mutable_grad() = distribute_tensor(gradient, mesh, placements);
  return result;
}

TEST(ClipGradTest, EveryNormAndLayoutIsAsOnPlainTensors) {
  on_every_rank_count([](World& world) {
    for (const double norm_type : {2.0, 1.0, 3.0, 0.5, kInfinity}) {
      for (const double max_norm : {0.7, 1000.0}) {
        const auto plain = plain_parameters();
        // An empty tensor has no greatest element for libtorch.
        const std::vector<at::Tensor> full(plain.begin(), plain.end() - 1);
        const double expected = torch::nn::utils::clip_grad_norm_(full, max_norm, norm_type);
        for (const auto& mesh : test::meshes_of(world)) {
          const auto ndim = static_cast<std::size_t>(mesh.ndim());
          const auto gradients = plain_gradients();
          const Placements replicated(ndim, Replicate());
          Placements cut = replicated;
          cut.back() = Shard(0);
          Placements partial = replicated;
          partial.back() = Partial();
          std::vector<at::Tensor> parameters = {
              placed_parameter(gradients[0], mesh, cut, partial),
              placed_parameter(gradients[1], mesh, Placements(ndim, Shard(0)),
                               Placements(ndim, Shard(0))),
              placed_parameter(gradients[2], mesh, replicated, replicated),
              torch::zeros({}, torch::kDouble).requires_grad_(),
              placed_parameter(gradients[4], mesh, cut, cut),
              torch::zeros({3}).requires_grad_()};
          parameters[3].mutable_grad() = gradients[3].clone();
          parameters.push_back(parameters[1]);
          EXPECT_NEAR(clip_grad_norm(parameters, max_norm, {.norm_type = norm_type}), expected,
                      1e-10 * expected);
          EXPECT_EQ(placements_of(parameters[0].grad()), cut);
          for (std::size_t i = 0; i < 5; ++i) {
            const auto& gradient = parameters[i].grad();
            const auto whole = is_dtensor(gradient) ? full_tensor(gradient) : gradient;
            EXPECT_TRUE(torch::allclose(whole, plain[i].grad(), 1e-7, 1e-12)) << i;
          }
        }
      }
    }
  });
}

TEST(ClipGradTest, EveryMeshCommunicatesOneNumber) {
  EXPECT_NO_THROW(run_ranks(4, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
    const auto gradients = plain_gradients();
    const std::vector<at::Tensor> parameters = {
        placed_parameter(gradients[0], mesh, {Shard(0), Shard(1)}, {Shard(0), Shard(1)}),
        placed_parameter(gradients[1], mesh["tp"], {Shard(0)}, {Shard(0)}),
        placed_parameter(gradients[1], mesh["tp"], {Shard(0)}, {Shard(0)}),
        placed_parameter(gradients[2], mesh["dp"], {Replicate()}, {Replicate()})};
    CommDebugMode traffic;
    double norm = 0;
    {
      const auto scope = traffic.record();
      norm = clip_grad_norm(parameters, 1.0);
    }
    EXPECT_EQ(traffic.counts(), (std::map<std::string, std::int64_t>{{"all_reduce", 2}}))
        << traffic.table();
    const double expected = std::sqrt(gradients[0].pow(2).sum().item<double>() +
                                      2 * gradients[1].pow(2).sum().item<double>() +
                                      gradients[2].pow(2).sum().item<double>());
    EXPECT_NEAR(norm, expected, 1e-12);
  }));
}

TEST(ClipGradTest, MeshesThatARankIsNotPartOfNeedAGroup) {
  EXPECT_NO_THROW(run_ranks(3, [](World& world) {
    const DeviceMesh first("cpu", MeshShape({2}, {}, {0, 1}));
    const DeviceMesh second("cpu", MeshShape({1}, {}, {2}));
    const auto gradients = plain_gradients();
    const std::vector<at::Tensor> parameters = {
        placed_parameter(gradients[0], first, {Shard(0)}, {Shard(0)}),
        placed_parameter(gradients[1], second, {Shard(0)}, {Shard(0)})};
    const double expected = std::sqrt(gradients[0].pow(2).sum().item<double>() +
                                      gradients[1].pow(2).sum().item<double>());
    EXPECT_NEAR(clip_grad_norm(parameters, 0.1, {.group = world.group()}), expected, 1e-12);
    EXPECT_NEAR(grad_norm(parameters, {.group = world.group()}), 0.1, 1e-6);
  }));
  EXPECT_THAT(test::failure_of(2,
                               [](World&) {
                                 const DeviceMesh first("cpu", MeshShape({1}, {}, {0}));
                                 const auto gradient = waves({3});
                                 (void)grad_norm(
                                     {placed_parameter(gradient, first, {Shard(0)}, {Shard(0)})});
                               }),
              HasSubstr("which rank 1 is not part of; pass the group of all ranks that call"));
}

TEST(ClipGradTest, OddCases) {
  EXPECT_EQ(clip_grad_norm({}, 1.0), 0.0);
  EXPECT_EQ(clip_grad_norm({torch::zeros({3}).requires_grad_()}, 1.0), 0.0);
  EXPECT_EQ(grad_norm(plain_parameters(), {.norm_type = 0}), 5.0);
  EXPECT_THROW((void)grad_norm({}, {.norm_type = -1}), InvalidArgument);
  auto parameter = torch::zeros({3}).requires_grad_();
  parameter.mutable_grad() = torch::full({3}, kInfinity);
  try {
    (void)clip_grad_norm({parameter}, 1.0, {.error_if_nonfinite = true});
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("The total norm of order 2 for gradients from `parameters` "
                                        "is non-finite (inf), so it cannot be clipped"));
  }
  EXPECT_EQ(clip_grad_norm({parameter}, 1.0), kInfinity);
  EXPECT_TRUE(parameter.grad().isnan().all().item<bool>()) << "0 times infinity, as in libtorch";
}

}  // namespace
}  // namespace tessera::nn
