#include "tessera/nn/loss_parallel.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "nn/networks.h"
#include "support/rank_test.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/strict_mode.h"

namespace tessera::nn {
namespace {

using test::on_every_rank_count;
using test::waves;
using testing::HasSubstr;

/// Arguments of a cross entropy.
struct Case {
  at::Tensor logits;
  at::Tensor target;
  at::Tensor weight;
  at::Reduction::Reduction reduction;
  double smoothing;
};

at::Tensor loss_of(const Case& one, const at::Tensor& logits, const at::Tensor& target,
                   const at::Tensor& weight) {
  // Probabilities cannot be ignored.
  const std::int64_t ignored = target.is_floating_point() ? -100 : 2;
  return at::cross_entropy_loss(logits, target, weight, one.reduction, ignored, one.smoothing);
}

/// Something to differentiate that does not treat all samples alike.
at::Tensor mixed(const at::Tensor& losses) { return (losses * losses).sum() + losses.sum(); }

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const auto classes = [](const std::vector<std::int64_t>& sizes, std::int64_t count) {
    std::int64_t numel = 1;
    for (const auto size : sizes) numel *= size;
    return (torch::arange(numel) * 3 + 1).remainder(count).reshape(sizes);
  };
  const std::vector<std::pair<at::Tensor, at::Tensor>> inputs = {
      {3 * waves({5, 11}), classes({5}, 11)},
      {200 * waves({4, 3}), classes({4}, 3)},
      {waves({2, 7, 3}), classes({2, 3}, 7)},
      {waves({7}), torch::tensor(4)},
      {waves({5, 7}), torch::softmax(waves({5, 7}, 0.8), 1)},
      {waves({2, 5, 3}), torch::softmax(waves({2, 5, 3}, 0.8), 1)}};
  for (const auto& [logits, target] : inputs) {
    const auto count = logits.size(logits.dim() == 1 ? 0 : 1);
    for (const auto& weight : {at::Tensor(), waves({count}, 0.5).abs() + 0.1}) {
      for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum, at::Reduction::None}) {
        for (const double smoothing : {0.0, 0.2}) {
          cases.push_back({logits, target, weight, reduction, smoothing});
        }
      }
    }
  }
  return cases;
}

/// Placements to try on a mesh for a tensor of `ndim` dims.
std::vector<Placements> all_placements(const DeviceMesh& mesh, std::int64_t ndim) {
  std::vector<Placement> single = {Replicate(), Partial()};
  for (std::int64_t dim = 0; dim < ndim; ++dim) single.emplace_back(Shard(dim));
  std::vector<Placements> all;
  for (const auto& first : single) {
    if (mesh.ndim() == 1) {
      all.push_back({first});
      continue;
    }
    for (const auto& second : single) all.push_back({first, second});
  }
  return all;
}

TEST(LossParallelTest, EveryOptionAndLayoutIsAsOnPlainTensors) {
  on_every_rank_count([](World& world) {
    const auto cases = all_cases();
    for (std::size_t index = 0; index < cases.size(); ++index) {
      // Every case on one or two numbers of ranks, every third one on the mesh of two dims.
      if ((index + static_cast<std::size_t>(world.size())) % 2 != 0) continue;
      const auto& one = cases[index];
      const auto plain = one.logits.clone().requires_grad_();
      const auto expected = loss_of(one, plain, one.target, one.weight);
      mixed(expected).backward();
      for (const auto& mesh : test::meshes_of(world)) {
        if (mesh.ndim() == 2 && index % 3 != 0) continue;
        const Placements replicated(static_cast<std::size_t>(mesh.ndim()), Replicate());
        for (const auto& placements : all_placements(mesh, one.logits.dim())) {
          SCOPED_TRACE(to_string(placements) + " of " + std::to_string(one.logits.dim()) +
                       " dims, reduction " + std::to_string(one.reduction) + ", smoothing " +
                       std::to_string(one.smoothing));
          const auto logits = distribute_tensor(one.logits, mesh, placements).requires_grad_();
          const auto loss =
              loss_of(one, logits, distribute_tensor(one.target, mesh, replicated), one.weight);
          EXPECT_TRUE(torch::allclose(full_tensor(loss).detach(), expected.detach(), 1e-9, 1e-12));
          mixed(loss).backward();
          EXPECT_TRUE(torch::allclose(full_tensor(logits.grad()), plain.grad(), 1e-9, 1e-12));
        }
      }
    }
  });
}

TEST(LossParallelTest, OnlyWhatThereIsPerSampleIsCommunicated) {
  EXPECT_NO_THROW(run_ranks(4, [](World&) {
    const auto mesh = init_device_mesh("cpu", {4});
    constexpr std::int64_t kSamples = 8;
    constexpr std::int64_t kClasses = 4000;
    const auto target = torch::arange(kSamples) * 17;
    auto logits = distribute_tensor(waves({kSamples, kClasses}), mesh, {Shard(1)}).requires_grad_();
    const LossParallel guard;
    const StrictGuard strict;
    CommDebugMode forward;
    CommDebugMode backward;
    at::Tensor loss;
    {
      const auto scope = forward.record();
      loss = torch::nn::functional::cross_entropy(logits, target);
    }
    {
      const auto scope = backward.record();
      loss.backward();
    }
    EXPECT_EQ(forward.counts(), (std::map<std::string, std::int64_t>{{"all_reduce", 2}}))
        << forward.table();
    // All members' greatest logits, and two sums: 3 numbers per sample, 2 (n - 1) / n times.
    EXPECT_EQ(forward.received_bytes(), 3 * kSamples * 8 * 2 * 3 / 4) << forward.table();
    EXPECT_EQ(backward.total_count(), 0) << backward.table();
    EXPECT_EQ(placements_of(logits.grad()), Placements{Shard(1)});
  }));
}

TEST(LossParallelTest, DataParallelLossesGatherNothing) {
  EXPECT_NO_THROW(run_ranks(2, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2});
    auto logits = distribute_tensor(waves({6, 5}), mesh, {Shard(0)}).requires_grad_();
    const auto target = distribute_tensor(torch::arange(6).remainder(5), mesh, {Shard(0)});
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      torch::nn::functional::cross_entropy(logits, target).backward();
    }
    EXPECT_LE(traffic.received_bytes(), 64) << traffic.table();
    EXPECT_EQ(placements_of(logits.grad()), Placements{Shard(0)});
  }));
}

TEST(LossParallelTest, HalfPrecisionIsComputedInSingle) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto plain = waves({6, 9}).to(torch::kBFloat16).requires_grad_();
    const auto target = torch::arange(6);
    const auto expected = torch::nn::functional::cross_entropy(plain, target);
    expected.backward();
    const auto logits = distribute_tensor(plain.detach(), mesh, {Shard(1)}).requires_grad_();
    const auto loss = torch::nn::functional::cross_entropy(logits, target);
    loss.backward();
    EXPECT_EQ(loss.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(torch::allclose(full_tensor(loss), expected, 1e-2, 1e-2));
    EXPECT_TRUE(torch::allclose(full_tensor(logits.grad()), plain.grad(), 1e-2, 1e-3));
  });
}

TEST(LossParallelTest, TwiceDifferentiableWhereClassesAreWhole) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto second = [](const at::Tensor& logits, const at::Tensor& target) {
      const auto loss = torch::nn::functional::cross_entropy(logits, target);
      const auto first = torch::autograd::grad({loss}, {logits}, {}, {}, /*create_graph=*/true)[0];
      first.pow(2).sum().backward();
      return logits.grad();
    };
    const auto target = torch::arange(4);
    const auto expected = second(waves({4, 5}).requires_grad_(), target);
    const auto logits = distribute_tensor(waves({4, 5}), mesh, {Shard(0)}).requires_grad_();
    EXPECT_TRUE(torch::allclose(full_tensor(second(logits, target)), expected));
  });
}

TEST(LossParallelTest, ErrorsSayWhatToDo) {
  const auto message = [](const Placement& placement, const at::Tensor& target, bool twice) {
    return test::failure_of(2, [&](World&) {
      const auto mesh = init_device_mesh("cpu", {2});
      const auto logits = distribute_tensor(waves({4, 5}), mesh, {placement}).requires_grad_();
      const LossParallel guard;
      const auto loss = torch::nn::functional::cross_entropy(logits, target);
      torch::autograd::grad({loss}, {logits}, {}, {}, /*create_graph=*/twice);
    });
  };
  EXPECT_THAT(
      message(Replicate(), torch::arange(4), false),
      HasSubstr("loss_parallel: logits placed [4,5][R] on [2] given; they must be Shard(1), "
                "cut along the classes"));
  EXPECT_THAT(message(Shard(1), torch::arange(4) + 2, false),
              HasSubstr("Target 5 is out of bounds; classes are 0 to 4"));
  EXPECT_THAT(message(Shard(1), torch::arange(4), true),
              HasSubstr("can be differentiated once only"));
}

}  // namespace
}  // namespace tessera::nn
