#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/samples.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {
namespace {

using test::meshes_of;
using test::on_every_rank_count;
using test::waves;

const std::vector<Placement>& some_placements() {
  static const std::vector<Placement> all = {
      Replicate(),           Shard(0),  Shard(1),
      StridedShard(0, 2),    Partial(), Partial(ReduceOp::avg),
      Partial(ReduceOp::max)};
  return all;
}

Placements as_gradient(Placements placements) {
  for (auto& placement : placements) {
    if (is_partial(placement)) placement = Replicate();
  }
  return placements;
}

bool can_move(const Placement& from, const Placement& to) {
  return !is_partial(from) || !is_partial(to) || from == to;
}

TEST(DTensorGradientTest, GoesBackThroughEveryPairOfLayouts) {
  on_every_rank_count([](World& world) {
    const auto x = waves({6, 5});
    for (const auto& mesh : meshes_of(world)) {
      const auto ndim = static_cast<std::size_t>(mesh.ndim());
      for (const auto& from : some_placements()) {
        for (const auto& to : some_placements()) {
          if (!can_move(from, to)) continue;
          SCOPED_TRACE(to_string(Placements{from, to}));
          auto source = distribute_tensor(x, mesh, Placements(ndim, from)).requires_grad_(true);
          const auto moved = redistribute(source, Placements(ndim, to));
          const auto loss = (moved * moved * moved).sum();
          const auto first = torch::autograd::grad({loss}, {source}, {}, true, true)[0];
          EXPECT_TRUE(torch::allclose(full_tensor(first), 3 * x * x)) << to_string(first);
          // Where nothing moves, the result is the source itself.
          if (!moved.is_same(source)) {
            EXPECT_EQ(placements_of(first), as_gradient(placements_of(source)));
          }
          first.sum().backward();
          EXPECT_TRUE(torch::allclose(full_tensor(source.grad()), 6 * x))
              << to_string(source.grad());
          EXPECT_EQ(placements_of(source.grad()), as_gradient(placements_of(source)));
        }
      }
    }
  });
}

TEST(DTensorGradientTest, OfALeafIsPlacedLikeTheLeaf) {
  on_every_rank_count([](World& world) {
    for (const auto& mesh : meshes_of(world)) {
      const auto ndim = static_cast<std::size_t>(mesh.ndim());
      for (const auto& own : some_placements()) {
        for (const Placement& other :
             {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))}) {
          const auto w =
              distribute_tensor(waves({4, 6}), mesh, Placements(ndim, own)).requires_grad_(true);
          const auto x = distribute_tensor(waves({5, 4}), mesh, Placements(ndim, other));
          torch::mm(x, w).square().sum().backward();
          EXPECT_EQ(placements_of(w.grad()), as_gradient(placements_of(w)));
          const auto plain = waves({4, 6}).requires_grad_(true);
          torch::mm(waves({5, 4}), plain).square().sum().backward();
          EXPECT_TRUE(torch::allclose(full_tensor(w.grad()), plain.grad()));
        }
      }
    }
  });
}

TEST(DTensorGradientTest, OfAReplicatedWeightIsReducedOnce) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto w = distribute_tensor(waves({4, 6}), mesh, {Replicate()}).requires_grad_(true);
    const auto x = distribute_tensor(waves({8, 4}), mesh, {Shard(0)});
    const auto loss = (torch::mm(x, w) + torch::mm(x * 2, w)).sum();
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      loss.backward();
    }
    EXPECT_EQ(traffic.total_count(), world.size() > 1 ? 1 : 0) << traffic.table();
  });
}

TEST(DTensorGradientTest, AddsUpOverSeveralPasses) {
  on_every_rank_count([](World& world) {
    for (const auto& mesh : meshes_of(world)) {
      const auto ndim = static_cast<std::size_t>(mesh.ndim());
      for (const auto& own : some_placements()) {
        const auto w =
            distribute_tensor(waves({5, 3}), mesh, Placements(ndim, own)).requires_grad_(true);
        const auto x = distribute_tensor(waves({5, 3}), mesh, Placements(ndim, Shard(1)));
        for (int pass = 0; pass < 3; ++pass) {
          const auto loss = (w * x).sum() + w.exp().sum();
          loss.backward();
        }
        const auto expected = 3 * (waves({5, 3}) + waves({5, 3}).exp());
        EXPECT_TRUE(torch::allclose(full_tensor(w.grad()), expected));
        EXPECT_EQ(placements_of(w.grad()), as_gradient(placements_of(w)));
      }
    }
  });
}

TEST(DTensorGradientTest, TwoPassesThroughOneGraph) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto run = [](const at::Tensor& w, const at::Tensor& x) {
      const auto loss = torch::log_softmax(torch::mm(x, w).tanh(), 1).square().mean();
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      return w.grad();
    };
    const auto plain = waves({4, 6}).requires_grad_(true);
    const auto expected = run(plain, waves({5, 4}));
    for (const Placement& placement :
         {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate())}) {
      const auto w = distribute_tensor(waves({4, 6}), mesh, {placement}).requires_grad_(true);
      const auto gradient = run(w, distribute_tensor(waves({5, 4}), mesh, {Shard(0)}));
      EXPECT_TRUE(torch::allclose(full_tensor(gradient), expected));
    }
  });
}

TEST(DTensorGradientTest, FromLocalAndToLocalDifferentiateTwice) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto local = (waves({2, 3}) + static_cast<double>(world.rank())).requires_grad_(true);
    const auto d = from_local(local, mesh, {Shard(0)});
    const auto back = to_local(d * d * d);
    const auto first = torch::autograd::grad({back.sum()}, {local}, {}, true, true)[0];
    EXPECT_TRUE(torch::allclose(first, 3 * local * local));
    first.sum().backward();
    EXPECT_TRUE(torch::allclose(local.grad(), 6 * local));
  });
}

}  // namespace
}  // namespace tessera
