#include <gtest/gtest.h>

#include <torch/torch.h>

#include "support/rank_test.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/factories.h"
#include "tessera/tensor/random.h"

namespace tessera {
namespace {

using test::on_every_rank_count;

using Draw = std::function<at::Tensor(const DeviceMesh& mesh, const Placements& placements)>;

/// All layouts of a tensor of two dims on the meshes of a world.
template <typename Visit>
void for_each_layout(const World& world, const Visit& visit) {
  std::vector<DeviceMesh> meshes = {init_device_mesh("cpu", {world.size()})};
  if (world.size() == 4) meshes.push_back(init_device_mesh("cpu", {2, 2}));
  const std::vector<Placement> all = {Replicate(), Shard(0), Shard(1), StridedShard(0, 2),
                                      Partial()};
  for (const auto& mesh : meshes) {
    for (const auto& outer : all) {
      if (mesh.ndim() == 1) {
        visit(mesh, Placements{outer});
        continue;
      }
      for (const auto& inner : all) visit(mesh, Placements{outer, inner});
    }
  }
}

/// Expects the same bits from every layout and any number of ranks, twice in a row other ones.
void expect_same_everywhere(const Draw& draw) {
  at::Tensor first;
  at::Tensor second;
  run_ranks(1, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {1});
    manual_seed(11);
    first = full_tensor(draw(mesh, {Replicate()}));
    second = full_tensor(draw(mesh, {Replicate()}));
  });
  EXPECT_FALSE(torch::equal(first, second));
  on_every_rank_count([&](World& world) {
    for_each_layout(world, [&](const DeviceMesh& mesh, const Placements& placements) {
      manual_seed(11);
      EXPECT_TRUE(torch::equal(full_tensor(draw(mesh, placements)), first))
          << to_string(placements);
      EXPECT_TRUE(torch::equal(full_tensor(draw(mesh, placements)), second))
          << to_string(placements);
    });
  });
}

at::Tensor drawn(const DeviceMesh& mesh, const Placements& placements,
                 const std::function<void(at::Tensor&)>& fill) {
  auto tensor = zeros({7, 5}, mesh, placements);
  fill(tensor);
  return tensor;
}

TEST(DTensorRandomTest, Rand) {
  expect_same_everywhere([](const auto& mesh, const auto& p) { return rand({7, 5}, mesh, p); });
}

TEST(DTensorRandomTest, Randn) {
  expect_same_everywhere([](const auto& mesh, const auto& p) { return randn({7, 5}, mesh, p); });
}

TEST(DTensorRandomTest, Uniform) {
  expect_same_everywhere([](const auto& mesh, const auto& p) {
    return drawn(mesh, p, [](at::Tensor& x) { x.uniform_(-2, 3); });
  });
}

TEST(DTensorRandomTest, Normal) {
  expect_same_everywhere([](const auto& mesh, const auto& p) {
    return drawn(mesh, p, [](at::Tensor& x) { x.normal_(1, 4); });
  });
}

TEST(DTensorRandomTest, Bernoulli) {
  expect_same_everywhere([](const auto& mesh, const auto& p) {
    return drawn(mesh, p, [](at::Tensor& x) { x.bernoulli_(0.3); });
  });
  expect_same_everywhere([](const auto& mesh, const auto& p) {
    return torch::bernoulli(full({7, 5}, 0.4, mesh, p));
  });
}

TEST(DTensorRandomTest, Dropout) {
  expect_same_everywhere([](const auto& mesh, const auto& p) {
    return torch::dropout(ones({7, 5}, mesh, p), 0.5, true);
  });
}

TEST(DTensorRandomTest, Initialisation) {
  namespace init = torch::nn::init;
  const std::vector<std::function<void(at::Tensor&)>> all = {
      [](at::Tensor& x) { init::xavier_uniform_(x); },
      [](at::Tensor& x) { init::xavier_normal_(x); },
      [](at::Tensor& x) { init::kaiming_uniform_(x, std::sqrt(5)); },
      [](at::Tensor& x) { init::kaiming_normal_(x); },
      [](at::Tensor& x) { init::uniform_(x, -1, 1); },
      [](at::Tensor& x) { init::normal_(x, 0, 0.02); },
  };
  for (const auto& initialise : all) {
    expect_same_everywhere(
        [&](const auto& mesh, const auto& p) { return drawn(mesh, p, initialise); });
  }
}

TEST(DTensorRandomTest, ValuesAreSpreadAsTheyShouldBe) {
  run_ranks(2, [](World&) {
    const auto mesh = init_device_mesh("cpu", {2});
    manual_seed(5);
    const auto even = full_tensor(rand({100, 100}, mesh, {Shard(0)}));
    EXPECT_GE(even.min().item<float>(), 0);
    EXPECT_LT(even.max().item<float>(), 1);
    EXPECT_NEAR(even.mean().item<float>(), 0.5, 0.02);
    const auto normal = full_tensor(randn({100, 100}, mesh, {Shard(1)}));
    EXPECT_NEAR(normal.mean().item<float>(), 0, 0.05);
    EXPECT_NEAR(normal.std().item<float>(), 1, 0.05);
    const auto kept = full_tensor(torch::dropout(ones({100, 100}, mesh, {Shard(0)}), 0.25, true));
    EXPECT_NEAR(kept.mean().item<float>(), 1, 0.05);
    EXPECT_NEAR((kept == 0).to(torch::kFloat).mean().item<float>(), 0.25, 0.03);
  });
}

}  // namespace
}  // namespace tessera
