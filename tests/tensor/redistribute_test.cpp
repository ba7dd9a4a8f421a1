#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/local_map_cases.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {
namespace {

using test::expect_refused;
using test::on_every_rank_count;
using test::sample_values;

Placements as_gradient(Placements placements) {
  for (auto& placement : placements) {
    if (is_partial(placement)) placement = Replicate();
  }
  return placements;
}

/// Bytes that the calling rank sends in `fn`.
template <typename Function>
std::int64_t sent_in(const Function& fn) {
  CommDebugMode traffic;
  {
    const auto scope = traffic.record();
    fn();
  }
  return traffic.sent_bytes();
}

TEST(RedistributeTest, EveryPairOfLayoutsOfAMeshOfTwoDimsWithGradients) {
  run_ranks(
      4,
      [](World&) {
        const auto mesh = init_device_mesh("cpu", {2, 2});
        const std::vector<Placement> all = {Replicate(), Shard(0), Shard(1), StridedShard(0, 2),
                                            Partial()};
        std::vector<Placements> layouts;
        for (const auto& outer : all) {
          for (const auto& inner : all) layouts.push_back({outer, inner});
        }
        const auto values = sample_values({5, 3});
        for (const auto& from : layouts) {
          for (const auto& to : layouts) {
            SCOPED_TRACE(to_string(from) + " to " + to_string(to));
            const auto x = distribute_tensor(values, mesh, from, {.src_data_rank = std::nullopt})
                               .requires_grad_();
            const auto moved = redistribute(x, to);
            EXPECT_EQ(placements_of(moved), to);
            full_tensor(moved).pow(2).sum().backward();
            EXPECT_TRUE(torch::allclose(full_tensor(x.grad()), 2 * values));
            EXPECT_EQ(placements_of(x.grad()), as_gradient(from));
          }
        }
      },
      test::test_options());
}

TEST(RedistributeTest, NothingToMoveIsTheTensorItself) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({5, 3}), mesh, {Shard(0)}).requires_grad_();
    EXPECT_TRUE(redistribute(x, {Shard(0)}).is_same(x));
    EXPECT_TRUE(redistribute(x, mesh, {Shard(-2)}, {.async_op = true}).is_same(x));
  });
}

TEST(RedistributeTest, ToAnotherMeshAndBackWithSecondDerivatives) {
  on_every_rank_count([](World& world) {
    const auto all = init_device_mesh("cpu", {world.size()});
    std::vector<DeviceMesh> others = {init_device_mesh("cpu", {1, world.size()}),
                                      DeviceMesh("cpu", MeshShape({1}, {}, {world.size() - 1}))};
    if (world.size() == 4) {
      others.push_back(init_device_mesh("cpu", {2, 2}));
      others.emplace_back("cpu", MeshShape({3}, {}, {3, 0, 2}));
    }
    const auto values = sample_values({5, 3});
    const std::vector<Placement> some = {Replicate(), Shard(0), Shard(1), Partial()};
    for (const auto& other : others) {
      const auto ndim = static_cast<std::size_t>(other.ndim());
      for (const auto& from : some) {
        for (const auto& to : some) {
          for (const bool async_op : {false, true}) {
            SCOPED_TRACE(to_string(Placements{from, to}));
            const auto x = distribute_tensor(values, all, {from}).requires_grad_();
            const auto there = redistribute(x, other, Placements(ndim, to), {.async_op = async_op});
            EXPECT_EQ(mesh_of(there), other);
            const auto cubes = redistribute(there.pow(3), all, {Replicate()});
            const auto first =
                torch::autograd::grad({to_local(cubes).sum()}, {x}, {}, true, true)[0];
            EXPECT_EQ(mesh_of(first), all);
            EXPECT_EQ(placements_of(first), as_gradient({from}));
            EXPECT_TRUE(torch::allclose(full_tensor(first), 3 * values.square()));
            full_tensor(first).sum().backward();
            EXPECT_TRUE(torch::allclose(full_tensor(x.grad()), 6 * values));
          }
        }
      }
    }
  });
}

TEST(RedistributeTest, DtypesAreThoseThatAreSent) {
  run_ranks(
      2,
      [](World&) {
        const auto mesh = init_device_mesh("cpu", {2});
        const auto values = sample_values({8, 4});
        for (const bool async_op : {false, true}) {
          const auto x = distribute_tensor(values, mesh, {Shard(0)}).requires_grad_();
          at::Tensor moved;
          // Half of the rank's 16 elements go to the other one.
          EXPECT_EQ(sent_in([&] {
                      moved = redistribute(x, {Shard(1)},
                                           {.async_op = async_op,
                                            .forward_dtype = at::kFloat,
                                            .backward_dtype = at::kBFloat16});
                      wait(to_local(moved));
                    }),
                    8 * 4);
          EXPECT_EQ(moved.scalar_type(), at::kFloat);
          EXPECT_EQ(to_local(moved).scalar_type(), at::kFloat);
          EXPECT_TRUE(torch::equal(full_tensor(moved), values.to(at::kFloat)));
          const auto loss = to_local(moved).pow(2).sum();
          EXPECT_EQ(sent_in([&] { loss.backward(); }), 8 * 2);
          EXPECT_EQ(x.grad().scalar_type(), at::kDouble);
          EXPECT_EQ(placements_of(x.grad()), Placements{Shard(0)});
          EXPECT_TRUE(torch::equal(full_tensor(x.grad()),
                                   (2 * values.to(at::kFloat)).to(at::kBFloat16).to(at::kDouble)));
        }
      },
      test::test_options());
}

TEST(RedistributeTest, WithoutABackwardDtypeGradientsAreSentInTheSourcesOwn) {
  run_ranks(
      2,
      [](World&) {
        const auto mesh = init_device_mesh("cpu", {2});
        const auto x = distribute_tensor(sample_values({8, 4}), mesh, {Shard(0)}).requires_grad_();
        const auto moved = redistribute(x, {Shard(1)}, {.forward_dtype = at::kFloat});
        const auto loss = to_local(moved).sum();
        EXPECT_EQ(sent_in([&] { loss.backward(); }), 8 * 8);
        EXPECT_EQ(x.grad().scalar_type(), at::kDouble);
      },
      test::test_options());
}

TEST(RedistributeTest, DtypesApplyWhereNothingMoves) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({5, 3});
    const auto x = distribute_tensor(values, mesh, {Shard(0)}).requires_grad_();
    const auto cast = redistribute(x, {Shard(0)}, {.forward_dtype = at::kFloat});
    EXPECT_EQ(cast.scalar_type(), at::kFloat);
    const auto first = torch::autograd::grad({cast.pow(3).sum()}, {x}, {}, true, true)[0];
    EXPECT_EQ(first.scalar_type(), at::kDouble);
    EXPECT_TRUE(torch::allclose(full_tensor(first), 3 * values.square(), 1e-5));
    first.sum().backward();
    EXPECT_TRUE(torch::allclose(full_tensor(x.grad()), 6 * values, 1e-5));
  });
}

TEST(RedistributeTest, IntegersHaveNoGradients) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({5, 3}) * 10;
    const auto x = distribute_tensor(values, mesh, {Shard(0)}).requires_grad_();
    const RedistributeOptions options{.forward_dtype = at::kLong};
    const auto one = redistribute(x, {Replicate()}, options);
    const auto all = redistribute_all({x}, {{Replicate()}}, options)[0];
    EXPECT_FALSE(one.requires_grad());
    EXPECT_FALSE(all.requires_grad());
    EXPECT_TRUE(torch::equal(full_tensor(one), values.to(at::kLong)));
    EXPECT_TRUE(torch::equal(full_tensor(all), values.to(at::kLong)));
  });
}

TEST(RedistributeTest, WrongCallsAreRefused) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"tp"});
    const auto x = distribute_tensor(sample_values({5, 3}), mesh, {Shard(0)});
    expect_refused(
        [&] {
          (void)redistribute(sample_values({5, 3}), {Shard(0)});
        },
        {"redistribute: a plain tensor given, a DTensor is needed; make one with"});
    expect_refused([&] { (void)redistribute({}, {Shard(0)}); },
                   {"redistribute: an undefined tensor given"});
    expect_refused([&] { (void)redistribute(x, {}); }, {"redistribute: 0 placement(s) [] given"});
    expect_refused(
        [&] {
          (void)redistribute(x, {Shard(0), Shard(1)});
        },
        {"redistribute: 2 placement(s) [S(0),S(1)] given for", "one per mesh dim"});
    expect_refused([&] { (void)redistribute(x, {Shard(2)}); },
                   {"redistribute: ", "S(2)", "shard dims -2 to 1"});
    if (world.size() == 1) return;
    const auto sum = redistribute(x, {Partial()});
    expect_refused([&] { (void)redistribute(sum, {Partial(ReduceOp::max)}); },
                   {"redistribute: mesh dim tp of", "from P(sum) to P(max)"});
  });
}

}  // namespace
}  // namespace tessera
