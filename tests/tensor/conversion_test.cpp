#include <torch/torch.h>

#include "support/rank_test.h"
#include "tensor/local_map_cases.h"
#include "tensor/own_values.h"
#include "tessera/tensor/dtensor.h"

namespace tessera {
namespace {

using test::collectives_in;
using test::expect_refused;
using test::on_every_rank_count;
using test::own_values;
using test::sample_values;

TEST(DistributeTensorTest, TakesTheValuesOfTheSourceRank) {
  on_every_rank_count([](World& world) {
    // The mesh numbers ranks otherwise than the world does.
    std::vector<std::int64_t> ranks;
    for (std::int64_t i = world.size() - 1; i >= 0; --i) ranks.push_back(i);
    const DeviceMesh mesh("cpu", MeshShape({world.size()}, {}, ranks));
    for (std::int64_t source = 0; source < world.size(); ++source) {
      for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(1)),
                                         Placement(Replicate()), Placement(Partial())}) {
        const auto d = distribute_tensor(own_values(world, {5, 3}), mesh, {placement},
                                         {.src_data_rank = source});
        EXPECT_TRUE(torch::equal(full_tensor(d), sample_values({5, 3}, world.size() - 1 - source)))
            << to_string(d);
      }
    }
  });
}

TEST(DistributeTensorTest, WithoutASourceNothingIsCommunicated) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{5, 3}, {0, 2}, {1, 1}}) {
      const auto values = sample_values(sizes);
      for (const Placement& placement : {Placement(Shard(0)), Placement(Shard(1)),
                                         Placement(Replicate()), Placement(Partial())}) {
        at::Tensor d;
        EXPECT_EQ(collectives_in([&] {
                    d = distribute_tensor(values, mesh, {placement},
                                          {.src_data_rank = std::nullopt});
                  }),
                  0);
        EXPECT_TRUE(torch::equal(full_tensor(d), values)) << to_string(d);
      }
      const auto number = distribute_tensor(torch::tensor(2.5), mesh, {Replicate()},
                                            {.src_data_rank = std::nullopt});
      EXPECT_EQ(number.item<float>(), 2.5F);
    }
  });
}

TEST(DistributeTensorTest, MakesALeafOfItsOwn) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({4, 3}).requires_grad_();
    for (const Placement& placement : {Placement(Shard(0)), Placement(Replicate())}) {
      const auto d = distribute_tensor(values, mesh, {placement});
      EXPECT_TRUE(d.is_leaf());
      EXPECT_TRUE(d.requires_grad());
      EXPECT_TRUE(distribute_tensor(d, mesh, {placement}).is_same(d));
      const torch::NoGradGuard no_grad;
      d.zero_();
      EXPECT_TRUE(torch::equal(values, sample_values({4, 3}))) << "the source was written to";
    }
  });
}

TEST(DistributeTensorTest, WrongCallsAreRefused) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"tp"});
    const auto x = sample_values({4, 3});
    expect_refused([&] { (void)distribute_tensor({}, mesh, {Shard(0)}); },
                   {"distribute_tensor: an undefined tensor given"});
    expect_refused([&] { (void)distribute_tensor(x, mesh, {}); },
                   {"distribute_tensor: 0 placement(s) [] given for",
                    "`placements` must have the same length as `device_mesh.ndim`"});
    expect_refused(
        [&] {
          (void)distribute_tensor(x, mesh, {Shard(0), Shard(1)});
        },
        {"distribute_tensor: 2 placement(s) [S(0),S(1)] given for"});
    expect_refused([&] { (void)distribute_tensor(x, mesh, {Shard(2)}); },
                   {"distribute_tensor: ", "S(2)", "shard dims -2 to 1"});
    expect_refused([&] { (void)distribute_tensor(x, mesh, {Shard(-3)}); },
                   {"distribute_tensor: ", "S(-3)", "shard dims -2 to 1"});
    expect_refused([&] { (void)distribute_tensor(torch::tensor(1.0), mesh, {Shard(0)}); },
                   {"distribute_tensor: ", "S(0)"});
    expect_refused(
        [&] { (void)distribute_tensor(x.clone().requires_grad_() * 2, mesh, {Shard(0)}); },
        {"a tensor with history given, but only leaf tensors can be distributed", "detach()"});
    expect_refused(
        [&] { (void)distribute_tensor(x, mesh, {Shard(0)}, {.src_data_rank = world.size()}); },
        {"src_data_rank", "allowed are 0 to"});
    const auto d = distribute_tensor(x, mesh, {Shard(0)});
    expect_refused([&] { (void)distribute_tensor(d, mesh, {Shard(1)}); },
                   {"Cannot distribute a DTensor placed", "call `redistribute` instead?"});
    EXPECT_TRUE(torch::equal(full_tensor(distribute_tensor(x, mesh, {Shard(-1)})), x));
  });
}

TEST(DistributeTensorTest, RanksThatDisagreeGetAnError) {
  for (const bool is_shape : {true, false}) {
    const auto message = test::failure_of(2, [&](World& world) {
      const auto mesh = init_device_mesh("cpu", {2});
      auto x = torch::zeros({is_shape && world.rank() == 1 ? 4 : 3, 2});
      if (!is_shape && world.rank() == 1) x = x.to(at::kDouble);
      (void)distribute_tensor(x, mesh, {Shard(0)});
    });
    EXPECT_FALSE(message.empty());
  }
}

TEST(ToLocalTest, TheGradientIsPlacedLikeTheTensor) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({5, 3});
    for (const Placement& placement :
         {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate()), Placement(Partial())}) {
      const auto d = distribute_tensor(values, mesh, {placement}).requires_grad_();
      const auto moved = d * 1;
      const auto local = to_local(moved);
      EXPECT_FALSE(is_dtensor(local));
      local.sum().backward();
      EXPECT_EQ(placements_of(d.grad()),
                Placements{is_partial(placement) ? Replicate() : placement});
      EXPECT_TRUE(torch::equal(full_tensor(d.grad()), torch::ones({5, 3}, at::kDouble)));
    }
  });
}

TEST(ToLocalTest, GradPlacementsSayWhatTheGradientIs) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto ranks = static_cast<double>(world.size());
    const auto d = distribute_tensor(sample_values({5, 3}), mesh, {Replicate()}).requires_grad_();
    // Every rank computes something else with its copy: gradients are parts of a sum.
    const auto local = to_local(d, {.grad_placements = {{Partial()}}});
    (local * static_cast<double>(world.rank() + 1)).sum().backward();
    EXPECT_TRUE(torch::allclose(full_tensor(d.grad()),
                                torch::full({5, 3}, ranks * (ranks + 1) / 2, at::kDouble)));
    // Of the whole, each rank may compute with its own rows only.
    d.mutable_grad().reset();
    const auto whole = full_tensor(d, {.grad_placements = {{Partial()}}});
    const auto rows = whole.tensor_split(world.size(), 0)[static_cast<std::size_t>(world.rank())];
    rows.square().sum().backward();
    EXPECT_TRUE(torch::allclose(full_tensor(d.grad()), 2 * sample_values({5, 3})));
    expect_refused([&] { (void)to_local(d, {.grad_placements = Placements{}}); },
                   {"to_local: grad_placements: 0 placement(s)"});
    expect_refused([&] { (void)full_tensor(d, {.grad_placements = {{Shard(2)}}}); },
                   {"to_local: grad_placements: ", "S(2)"});
  });
}

TEST(ToLocalTest, FullTensorDifferentiatesTwiceFromEveryLayout) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto values = sample_values({5, 3});
    for (const Placement& placement :
         {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate()), Placement(Partial()),
          Placement(StridedShard(0, 2))}) {
      const auto d = distribute_tensor(values, mesh, {placement}).requires_grad_();
      const auto loss = full_tensor(d).pow(3).sum();
      const auto first = torch::autograd::grad({loss}, {d}, {}, true, /*create_graph=*/true)[0];
      EXPECT_TRUE(torch::allclose(full_tensor(first), 3 * values.square()));
      EXPECT_EQ(placements_of(first), Placements{is_partial(placement) ? Replicate() : placement});
      full_tensor(first).sum().backward();
      EXPECT_TRUE(torch::allclose(full_tensor(d.grad()), 6 * values));
    }
  });
}

TEST(ToLocalTest, PlainTensorsAreRefused) {
  const auto x = torch::zeros({2});
  expect_refused([&] { (void)to_local(x); }, {"to_local: a plain tensor given"});
  expect_refused([&] { (void)full_tensor(x); }, {"full_tensor: a plain tensor given"});
  expect_refused([&] { (void)to_local({}); }, {"to_local: an undefined tensor given"});
  expect_refused([&] { (void)layout_of(x); },
                 {"layout_of: a plain tensor given, a DTensor is needed; make one with"});
  expect_refused([&] { (void)placements_of(x); }, {"placements_of: a plain tensor"});
  expect_refused([&] { (void)mesh_of(x); }, {"mesh_of: a plain tensor"});
  EXPECT_FALSE(is_dtensor(x));
  EXPECT_FALSE(is_dtensor({}));
}

}  // namespace
}  // namespace tessera
