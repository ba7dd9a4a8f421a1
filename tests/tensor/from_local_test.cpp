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

TEST(FromLocalTest, LearnsTheShapeOfUnevenParts) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    for (const std::int64_t rows : {0, 1, 2, 5, 8}) {
      for (const Placement& placement :
           {Placement(Shard(0)), Placement(Shard(-1)), Placement(StridedShard(0, 2))}) {
        const auto whole = sample_values({rows, 5});
        const auto part = to_local(distribute_tensor(whole, mesh, {placement})).clone();
        at::Tensor d;
        EXPECT_EQ(collectives_in([&] { d = from_local(part, mesh, {placement}); }),
                  world.size() == 1 ? 0 : 1);
        EXPECT_EQ(d.sizes(), whole.sizes());
        EXPECT_TRUE(torch::equal(full_tensor(d), whole));
        EXPECT_EQ(collectives_in([&] {
                    d = from_local(part, mesh, {placement}, {.shape = whole.sizes().vec()});
                  }),
                  0);
        EXPECT_TRUE(torch::equal(full_tensor(d), whole));
      }
    }
  });
}

TEST(FromLocalTest, LearnsTheShapeOnAMeshOfTwoDims) {
  run_ranks(
      4,
      [](World&) {
        const auto mesh = init_device_mesh("cpu", {2, 2});
        const std::vector<Placement> all = {Shard(0), Shard(1), Replicate(), StridedShard(0, 2)};
        for (const auto& sizes :
             std::vector<std::vector<std::int64_t>>{{5, 3}, {1, 7}, {3, 3}, {0, 2}}) {
          const auto whole = sample_values(sizes);
          for (const auto& outer : all) {
            for (const auto& inner : all) {
              const auto part = to_local(distribute_tensor(whole, mesh, {outer, inner}));
              const auto d = from_local(part.clone(), mesh, {outer, inner});
              EXPECT_EQ(d.sizes(), whole.sizes());
              EXPECT_TRUE(torch::equal(full_tensor(d), whole)) << to_string(d);
            }
          }
        }
      },
      test::test_options());
}

TEST(FromLocalTest, SharesTheMemoryOfThePart) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto part = own_values(world, {2, 3});
    const auto d = from_local(part, mesh, {Shard(0)});
    d.zero_();
    EXPECT_TRUE(torch::equal(part, torch::zeros_like(part)));
    to_local(d).fill_(2);
    EXPECT_TRUE(torch::equal(full_tensor(d), torch::full({2 * world.size(), 3}, 2.0, at::kDouble)));
  });
}

TEST(FromLocalTest, PartsThatDoNotFitAreRefusedOnAllRanks) {
  run_ranks(
      3,
      [](World& world) {
        const auto mesh = init_device_mesh("cpu", {3});
        const auto wrong = [&](const at::Tensor& part, const Placements& placements,
                               const FromLocalOptions& options,
                               const std::vector<std::string>& parts) {
          expect_refused([&] { (void)from_local(part, mesh, placements, options); }, parts);
        };
        // 1, 2, 2 is no way to cut five rows: chunks are 2, 2, 1.
        wrong(torch::zeros({world.rank() == 0 ? 1 : 2, 2}), {Shard(0)}, {},
              {"from_local: Inconsistent tensor metadata: rank 0 holds f32[1,2], but in "
               "[5,2][S(0)]",
               "2, 2, 1, 0"});
        wrong(torch::zeros({2, world.rank() == 2 ? 3 : 2}), {Shard(0)}, {},
              {"rank 2 holds f32[2,3], but in [6,2][S(0)]"});
        wrong(torch::zeros({2}, world.rank() == 1 ? at::kDouble : at::kFloat), {Shard(0)}, {},
              {"rank 1 holds f64[2]"});
        wrong(torch::zeros({2, 2}), {Shard(0)}, {.shape = std::vector<std::int64_t>{7, 2}},
              {"from_local: a local tensor of shape [2,2] given on rank", "in [7,2][S(0)]"});
        wrong(torch::zeros({2, 2}), {Shard(0)},
              {.run_check = true, .shape = std::vector<std::int64_t>{7, 2}},
              {"Inconsistent tensor metadata: rank 0 holds f32[2,2], but in [7,2][S(0)]"});
        wrong(torch::zeros({2, 2}), {Shard(2)}, {}, {"from_local: ", "S(2)", "shard dims -2 to 1"});
        wrong(torch::zeros({2, 2}), {}, {}, {"from_local: 0 placement(s) [] given for"});
        wrong(torch::zeros({2, 2}), {Shard(0), Shard(0)}, {},
              {"from_local: 2 placement(s) [S(0),S(0)] given for"});
        wrong(torch::zeros({2, 2}), {Replicate()}, {.grad_placements = Placements{}},
              {"from_local: grad_placements: 0 placement(s)"});
        wrong(torch::zeros({2, 2}), {Replicate()}, {.grad_placements = Placements{Shard(5)}},
              {"from_local: grad_placements: ", "S(5)"});
        wrong({}, {Replicate()}, {}, {"from_local: an undefined tensor given"});
        wrong(distribute_tensor(torch::zeros({2}), mesh, {Replicate()}), {Replicate()}, {},
              {"from_local only accepts torch.Tensor", "use redistribute"});
      },
      test::test_options());
}

TEST(FromLocalTest, PartsOfDifferentDimsAreAnError) {
  for (const bool run_check : {false, true}) {
    run_ranks(
        2,
        [&](World& world) {
          const auto mesh = init_device_mesh("cpu", {2});
          const auto part = world.rank() == 0 ? torch::zeros({2}) : torch::zeros({2, 2});
          expect_refused(
              [&] { (void)from_local(part, mesh, {Shard(0)}, {.run_check = run_check}); },
              {"from_local: Inconsistent tensor metadata: rank 1 holds f32[2,2], but rank 0 holds "
               "f32[2]"});
        },
        test::test_options());
  }
}

TEST(FromLocalTest, TheCheckFindsReplicasThatDiffer) {
  run_ranks(
      3,
      [](World& world) {
        const auto mesh = init_device_mesh("cpu", {3});
        expect_refused(
            [&] {
              (void)from_local(torch::zeros({world.rank() == 1 ? 3 : 2, 2}), mesh, {Replicate()},
                               {.run_check = true});
            },
            {"Inconsistent tensor metadata: rank 1 holds f32[3,2], but in [2,2][R]"});
        expect_refused(
            [&] {
              (void)from_local(torch::zeros({2}, world.rank() == 2 ? at::kLong : at::kFloat), mesh,
                               {Partial()}, {.run_check = true});
            },
            {"Inconsistent tensor metadata: rank 2 holds i64[2]"});
      },
      test::test_options());
}

TEST(FromLocalTest, TheCheckMakesReplicasEqual) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto part = own_values(world, {2, 3}).requires_grad_();
    const auto d = from_local(part, mesh, {Replicate()}, {.run_check = true});
    EXPECT_TRUE(torch::equal(to_local(d).detach(), sample_values({2, 3}, 0)));
    EXPECT_TRUE(torch::equal(part.detach(), own_values(world, {2, 3}))) << "the part was changed";
    to_local(d * 3).sum().backward();
    EXPECT_TRUE(torch::equal(part.grad(), torch::full({2, 3}, 3.0, at::kDouble)));
  });
}

TEST(FromLocalTest, TheCheckMakesReplicasEqualAlongOneOfTwoDims) {
  run_ranks(
      4,
      [](World& world) {
        const auto mesh = init_device_mesh("cpu", {2, 2});
        const auto d = from_local(own_values(world, {2, 3}), mesh, {Replicate(), Shard(0)},
                                  {.run_check = true});
        EXPECT_EQ(d.size(0), 4);
        EXPECT_TRUE(torch::equal(to_local(d), sample_values({2, 3}, world.rank() % 2)));
      },
      test::test_options());
}

TEST(FromLocalTest, TheCheckIsTheMeshsOwnAffair) {
  run_ranks(
      4,
      [](World& world) {
        const DeviceMesh some("cpu", MeshShape({2}, {}, {1, 3}));
        // The other ranks do not even call it.
        if (world.rank() % 2 == 0) return;
        const auto d =
            from_local(own_values(world, {2, 3}), some, {Replicate()}, {.run_check = true});
        EXPECT_TRUE(torch::equal(to_local(d), sample_values({2, 3}, 1)));
        const auto rows = from_local(own_values(world, {world.rank() == 1 ? 2 : 1, 3}), some,
                                     {Shard(0)}, {.run_check = true});
        EXPECT_EQ(rows.size(0), 3);
      },
      test::test_options());
}

TEST(FromLocalTest, RanksOutsideOfTheMeshMustBeToldTheShape) {
  run_ranks(
      3,
      [](World& world) {
        const DeviceMesh some("cpu", MeshShape({2}, {}, {0, 2}));
        const bool is_inside = world.rank() != 1;
        const auto part = is_inside ? torch::ones({2, 2}) : torch::ones({0});
        const auto d =
            from_local(part, some, {Shard(0)}, {.shape = std::vector<std::int64_t>{4, 2}});
        EXPECT_EQ(d.sizes(), at::IntArrayRef({4, 2}));
        EXPECT_EQ(to_local(d).numel(), is_inside ? 4 : 0);
        if (is_inside) return;
        expect_refused([&] { (void)from_local(part, some, {Shard(0)}); },
                       {"from_local: rank 1 is outside of", "pass .shape"});
      },
      test::test_options());
}

/// The gradients and second derivatives of `whole`, of which this rank is given `part`, as the loss of
/// all ranks has them.
struct Derivatives {
  at::Tensor first;
  at::Tensor second;
};

Derivatives derivatives(const at::Tensor& loss, const at::Tensor& leaf) {
  const auto first = torch::autograd::grad({loss}, {leaf}, {}, true, /*create_graph=*/true)[0];
  return {first.detach(), torch::autograd::grad({first.sum()}, {leaf})[0]};
}

TEST(FromLocalTest, GradientsComeBackAsThePartIsPlaced) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    const auto ranks = static_cast<double>(world.size());
    for (const Placement& placement :
         {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate()), Placement(Partial())}) {
      const bool is_copy = is_replicate(placement);
      auto part = (is_copy ? sample_values({2, 3}) : own_values(world, {2, 3})).requires_grad_();
      const auto d = from_local(part, mesh, {placement});
      const auto whole = full_tensor(d).detach();
      const auto [first, second] = derivatives(full_tensor(d.pow(3)).sum(), part);
      // A loss that every rank computes from the whole: its gradient for the whole is 3 w^2.
      const auto share = to_local(redistribute(distribute_tensor(whole, mesh, {Replicate()}),
                                               {is_partial(placement) ? Replicate() : placement}));
      EXPECT_TRUE(torch::allclose(first, 3 * share.square()));
      // The derivative of the sum of that over all ranks: a part of a sum is part of all of them.
      const double times = is_partial(placement) ? ranks : 1;
      EXPECT_TRUE(torch::allclose(second, times * 6 * share)) << to_string(Placements{placement});
    }
  });
}

TEST(FromLocalTest, GradPlacementsSayHowGradientsComeBack) {
  on_every_rank_count([](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    auto part = sample_values({4, 3}).requires_grad_();
    // Replicated input whose gradient is wanted in contributions: their sum is the gradient.
    const auto d = from_local(part, mesh, {Replicate()}, {.grad_placements = {{Partial()}}});
    (d * 2).sum().backward();
    const auto sum = full_tensor(from_local(part.grad(), mesh, {Partial()}));
    EXPECT_TRUE(torch::allclose(sum, torch::full({4, 3}, 2.0, at::kDouble)));
    // Contributions whose gradient is asked for as such.
    auto term = own_values(world, {4, 3}).requires_grad_();
    const auto e = from_local(term, mesh, {Partial()}, {.grad_placements = {{Replicate()}}});
    (e * 2).sum().backward();
    EXPECT_TRUE(torch::equal(term.grad(), torch::full({4, 3}, 2.0, at::kDouble)));
  });
}

}  // namespace
}  // namespace tessera
