#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/local_map_cases.h"
#include "tensor/redistribute_all_cases.h"
#include "tessera/comm/collectives.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {
namespace {

using test::expect_refused;
using test::on_every_rank_count;
using test::sample_values;
using Tensors = std::vector<at::Tensor>;

TEST(RedistributeAllTest, RandomListsMatchOneByOne) {
  on_every_rank_count([](World& world) {
    test::check_random_lists(world, static_cast<std::uint64_t>(world.size()) * 1000, 25);
  });
}

TEST(RedistributeAllTest, ManyParametersAreOneCollectiveForthAndBack) {
  on_every_rank_count(test::check_one_collective);
}

TEST(RedistributeAllTest, WhatIsInPlaceIsReturnedItself) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({5, 4}), mesh, {Shard(0)});
    const auto y = distribute_tensor(sample_values({3}), mesh, {Replicate()});
    const auto moved = redistribute_all({x, y}, {{Shard(0)}, {Shard(0)}});
    EXPECT_TRUE(moved[0].is_same(x));
    EXPECT_TRUE(torch::equal(full_tensor(moved[1]), sample_values({3})));
    EXPECT_TRUE(redistribute_all({}, {{Shard(0)}}).empty());
  });
}

TEST(RedistributeAllTest, CastsAsAsked) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({5, 4}), mesh, {Shard(0)}).requires_grad_();
    const auto y = distribute_tensor(sample_values({3}), mesh, {Partial()}).requires_grad_();
    const auto moved = redistribute_all({x, y}, {{Replicate()}}, {.forward_dtype = at::kFloat});
    EXPECT_EQ(moved[0].scalar_type(), at::kFloat);
    EXPECT_EQ(to_local(moved[1]).scalar_type(), at::kFloat);
    (moved[0].sum() + moved[1].sum()).backward();
    EXPECT_EQ(x.grad().scalar_type(), at::kDouble);
    EXPECT_TRUE(torch::equal(full_tensor(x.grad()), torch::ones({5, 4}, at::kDouble)));
    if (world.size() == 1) return;
    EXPECT_EQ(placements_of(y.grad()), Placements{Replicate()});
  });
}

TEST(RedistributeAllTest, RanksOutsideOfAMeshTakePart) {
  run_ranks(
      4,
      [](World& world) {
        const auto all = init_device_mesh("cpu", {4});
        const DeviceMesh some("cpu", MeshShape({2}, {}, {3, 1}));
        const auto x = distribute_tensor(sample_values({6, 4}, 1), all, {Shard(0)});
        const auto y = distribute_tensor(sample_values({5}, 2), some, {Shard(0)});
        const auto moved = redistribute_all({x, y}, {some, all}, {{Shard(1)}, {Replicate()}});
        EXPECT_TRUE(torch::equal(to_local(moved[1]), sample_values({5}, 2)));
        const auto back = full_tensor(redistribute(moved[0], all, {Replicate()}));
        EXPECT_TRUE(torch::equal(back, sample_values({6, 4}, 1)));
        EXPECT_EQ(to_local(moved[0]).numel(), world.rank() % 2 == 0 ? 0 : 12);
      },
      test::test_options());
}

TEST(RedistributeAllTest, WrongCallsAreRefused) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto x = distribute_tensor(sample_values({5, 4}), mesh, {Shard(0)});
    const auto to = [](const Placement& placement) { return Placements{placement}; };
    expect_refused(
        [&] {
          (void)redistribute_all({x, x, x}, {to(Shard(0)), to(Shard(1))});
        },
        {"redistribute_all: 2 list(s) of placements given for 3 tensor(s); pass one "
         "entry for each, or one for all"});
    expect_refused(
        [&] {
          (void)redistribute_all({x, x, x}, {mesh, mesh}, {to(Shard(0))});
        },
        {"redistribute_all: 2 mesh(es) given for 3 tensor(s)"});
    expect_refused(
        [&] {
          (void)redistribute_all({x, sample_values({2})}, {to(Shard(0))});
        },
        {"redistribute_all: tensor 1: a plain tensor given, a DTensor is needed"});
    expect_refused(
        [&] {
          (void)redistribute_all({x, at::Tensor()}, {to(Shard(0))});
        },
        {"redistribute_all: tensor 1: an undefined tensor given"});
    expect_refused(
        [&] {
          (void)redistribute_all({x, sample_values({2})}, {mesh}, {to(Shard(0))});
        },
        {"redistribute_all: tensor 1: redistribute: a plain tensor given"});
    expect_refused(
        [&] {
          (void)redistribute_all({x, x}, {to(Shard(0)), to(Shard(2))});
        },
        {"redistribute_all: tensor 1: redistribute: ", "S(2)", "shard dims -2 to 1"});
    if (world.size() == 1) return;
    const auto sum = distribute_tensor(sample_values({5}), mesh, {Partial()});
    expect_refused(
        [&] {
          (void)redistribute_all({x, sum}, {to(Shard(1)), to(Partial(ReduceOp::max))});
        },
        {"redistribute_all: tensor 1: redistribute: mesh dim 0", "from P(sum) to P(max)"});
  });
}

}  // namespace
}  // namespace tessera
