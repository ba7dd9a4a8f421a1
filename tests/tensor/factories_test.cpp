#include "tessera/tensor/factories.h"

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/local_map_cases.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/random.h"

namespace tessera {
namespace {

using test::expect_refused;
using test::on_every_rank_count;
using Sizes = std::vector<std::int64_t>;

/// Calls `visit` with every layout of a tensor of these sizes on the meshes of a world.
template <typename Visit>
void for_each_layout(const World& world, const Sizes& sizes, const Visit& visit) {
  std::vector<DeviceMesh> meshes = {init_device_mesh("cpu", {world.size()})};
  if (world.size() == 4) meshes.push_back(init_device_mesh("cpu", {2, 2}));
  std::vector<Placement> all = {Replicate(), Partial(), Partial(ReduceOp::max)};
  for (std::int64_t dim = 0; dim < std::ssize(sizes); ++dim) all.emplace_back(Shard(dim));
  for (const auto& mesh : meshes) {
    for (const auto& placement : all) {
      visit(mesh, Placements(static_cast<std::size_t>(mesh.ndim()), placement));
    }
  }
}

const std::vector<Sizes>& awkward_sizes() {
  static const std::vector<Sizes> all = {{5, 3}, {}, {1}, {0, 3}, {8}, {2, 3, 2}};
  return all;
}

void expect_made(const at::Tensor& made, const at::Tensor& expected, const Placements& placements) {
  EXPECT_EQ(placements_of(made), placements);
  EXPECT_EQ(made.scalar_type(), expected.scalar_type());
  EXPECT_EQ(made.sizes(), expected.sizes());
  EXPECT_TRUE(torch::equal(full_tensor(made), expected)) << to_string(made);
}

TEST(FactoriesTest, GiveTheGlobalTensorOnEveryLayoutWithoutTraffic) {
  on_every_rank_count([](World& world) {
    for (const auto& sizes : awkward_sizes()) {
      for_each_layout(world, sizes, [&](const DeviceMesh& mesh, const Placements& placements) {
        CommDebugMode traffic;
        std::vector<at::Tensor> made;
        {
          const auto scope = traffic.record();
          made = {zeros(sizes, mesh, placements),
                  ones(sizes, mesh, placements),
                  full(sizes, 2.5, mesh, placements),
                  full(sizes, 3, mesh, placements),
                  zeros(sizes, mesh, placements, at::kDouble),
                  empty(sizes, mesh, placements),
                  rand(sizes, mesh, placements),
                  randn(sizes, mesh, placements)};
        }
        EXPECT_EQ(traffic.total_count(), 0);
        expect_made(made[0], torch::zeros(sizes), placements);
        expect_made(made[1], torch::ones(sizes), placements);
        expect_made(made[2], torch::full(sizes, 2.5), placements);
        expect_made(made[3], torch::full(sizes, 3), placements);
        expect_made(made[4], torch::zeros(sizes, at::kDouble), placements);
        for (std::size_t i = 5; i < made.size(); ++i) {
          EXPECT_EQ(made[i].sizes(), at::IntArrayRef(sizes));
          EXPECT_EQ(placements_of(made[i]), placements);
        }
      });
    }
  });
}

TEST(FactoriesTest, CountsAreThoseOfTheWhole) {
  on_every_rank_count([](World& world) {
    for_each_layout(world, {7}, [&](const DeviceMesh& mesh, const Placements& placements) {
      expect_made(arange(7, mesh, placements), torch::arange(7), placements);
      expect_made(arange(1, 8.5, 1.5, mesh, placements), torch::arange(1, 8.5, 1.5), placements);
      expect_made(arange(5, -2, -1, mesh, placements), torch::arange(5, -2, -1), placements);
      expect_made(arange(0, mesh, placements), torch::arange(0), placements);
    });
  });
}

TEST(FactoriesTest, OptionsAreThoseOfLibtorch) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto w = randn({4, 3}, mesh, {Shard(0)}, torch::dtype(at::kDouble).requires_grad(true));
    EXPECT_TRUE(w.is_leaf());
    EXPECT_TRUE(w.requires_grad());
    EXPECT_EQ(w.scalar_type(), at::kDouble);
    w.square().sum().backward();
    EXPECT_EQ(placements_of(w.grad()), Placements{Shard(0)});
    EXPECT_FALSE(zeros({4}, mesh).requires_grad());
    EXPECT_EQ(placements_of(zeros({4}, mesh)), Placements{Replicate()});
    EXPECT_EQ(full({2}, true, mesh).scalar_type(), at::kBool);
    EXPECT_EQ(ones({2}, mesh, {}, at::kLong).scalar_type(), at::kLong);
  });
}

TEST(FactoriesTest, PlacementsAreChecked) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const Placements two = {Shard(0), Shard(0)};
    expect_refused([&] { (void)zeros({4}, mesh, two); },
                   {"zeros: 2 placement(s) [S(0),S(0)] given"});
    expect_refused([&] { (void)ones({4}, mesh, two); }, {"ones: 2 placement(s)"});
    expect_refused([&] { (void)full({4}, 2, mesh, two); }, {"full: 2 placement(s)"});
    expect_refused([&] { (void)empty({4}, mesh, two); }, {"empty: 2 placement(s)"});
    expect_refused([&] { (void)arange(4, mesh, two); }, {"arange: 2 placement(s)"});
    expect_refused([&] { (void)rand({4}, mesh, {Shard(1)}); }, {"rand: ", "S(1)"});
    expect_refused([&] { (void)randn({}, mesh, {Shard(0)}); }, {"randn: ", "S(0)"});
    expect_refused([&] { (void)empty({-1}, mesh); }, {"empty: "});
  });
}

}  // namespace
}  // namespace tessera
