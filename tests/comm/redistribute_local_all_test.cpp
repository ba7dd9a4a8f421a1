#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include "comm/redistribute_oracle.h"
#include "support/random_layout.h"
#include "support/rank_test.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/traffic.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {
namespace {

using ::testing::HasSubstr;

/// A mesh of some of the ranks, in any order.
MeshShape draw_mesh(Random& random, std::int64_t world_size) {
  const MeshShape mesh =
      random_mesh(random, {.max_dims = 2, .max_size = world_size, .max_ranks = world_size});
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), std::int64_t{0});
  if (random.one_in(3)) random.shuffle(ranks);
  ranks.resize(static_cast<std::size_t>(mesh.num_ranks()));
  return MeshShape(mesh.sizes(), mesh.names(), ranks);
}

/// Tensors of different shapes and dtypes, most of them on one mesh.
std::vector<MoveCase> draw_cases(Random& random, std::int64_t world_size) {
  const MeshShape mesh = draw_mesh(random, world_size);
  std::vector<MoveCase> cases;
  const auto count = static_cast<std::size_t>(random.between(1, 9));
  while (cases.size() < count) {
    const MeshShape from = random.one_in(5) ? draw_mesh(random, world_size) : mesh;
    const MeshShape to = random.one_in(5) ? draw_mesh(random, world_size) : from;
    const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 9, .max_numel = 200});
    const auto dtype = random.pick(std::vector{at::kFloat, at::kDouble, at::kLong, at::kByte,
                                               at::kBFloat16, at::kComplexDouble});
    const ReduceOp op =
        at::isComplexType(dtype) || random.one_in(2) ? ReduceOp::sum : ReduceOp::max;
    const PlacementOptions placements{.max_split_factor = 3, .partial_ops = {op}};
    cases.push_back({random_layout_on(random, from, shape, placements),
                     random_layout_on(random, to, shape, placements), dtype, random.one_in(3)});
  }
  return cases;
}

std::vector<LayoutChange> changes_of(const std::vector<MoveCase>& cases) {
  std::vector<LayoutChange> changes;
  for (const auto& each : cases) changes.push_back({each.from, each.to});
  return changes;
}

std::vector<at::Tensor> inputs_of(const std::vector<MoveCase>& cases, std::int64_t rank) {
  std::vector<at::Tensor> inputs;
  for (const auto& each : cases) inputs.push_back(local_input(each, rank));
  return inputs;
}

/// What contributions stand for: they can be of any values that reduce to the right one.
at::Tensor comparable(const at::Tensor& local, const Layout& layout) {
  if (!layout.has_partial()) return wait(local);
  const Layout whole(layout.mesh(),
                     Placements(static_cast<std::size_t>(layout.mesh().ndim()), Replicate()),
                     layout.shape());
  return redistribute_local(local, layout, whole);
}

/// Whether the same numbers, or the same bits where some are no numbers.
bool is_same(const at::Tensor& a, const at::Tensor& b) {
  const auto bits = [](const at::Tensor& x) {
    return x.clone(at::MemoryFormat::Contiguous).view({-1}).view(at::kByte);
  };
  return at::equal(a, b) || (a.sizes() == b.sizes() && at::equal(bits(a), bits(b)));
}

/// Moves the cases all at once and one by one, and compares.
void expect_same_as_one_by_one(const World& world, const std::vector<MoveCase>& cases,
                               const RedistributeLocalOptions& options) {
  const auto inputs = inputs_of(cases, world.rank());
  const auto changes = changes_of(cases);
  const auto together = redistribute_local_all(inputs, changes, options);
  ASSERT_EQ(together.size(), cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto alone = redistribute_local(inputs[i], changes[i].from, changes[i].to);
    const auto want = comparable(alone, changes[i].to);
    const auto got = comparable(together[i], changes[i].to);
    EXPECT_EQ(got.scalar_type(), want.scalar_type());
    EXPECT_TRUE(is_same(got, want))
        << "tensor " << i << ": " << changes[i].from << " to " << changes[i].to << "\n"
        << got << "\n"
        << want;
  }
}

void expect_random_lists(std::uint64_t first, std::uint64_t count, bool indirect) {
  on_every_rank_count([&](World& world) {
    if (indirect) make_all_indirect(world);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      SCOPED_TRACE(concat("seed ", seed, " on rank ", world.rank()));
      Random random(seed * 10 + static_cast<std::uint64_t>(world.size()));
      const auto cases = draw_cases(random, world.size());
      RedistributeLocalOptions options{.async_op = random.one_in(2)};
      if (random.one_in(3)) options.staging_budget = random.between(2000, 8000);
      expect_same_as_one_by_one(world, cases, options);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

TEST(RedistributeLocalAllTest, RandomListsMatchOneByOne) { expect_random_lists(1, 60, false); }

TEST(RedistributeLocalAllTest, RandomListsAsProcessesDoIt) { expect_random_lists(100, 60, true); }

/// Large enough that the ranks share the copying.
TEST(RedistributeLocalAllTest, LargeTensors) {
  const MeshShape mesh({4});
  std::vector<MoveCase> cases;
  for (const char* from : {"S0", "S1", "P"}) {
    for (const char* to : {"S1", "R", "S0"}) {
      cases.push_back({Layout(mesh, parse_placements(from), {515, 129}),
                       Layout(mesh, parse_placements(to), {515, 129}),
                       cases.size() % 2 == 0 ? at::kFloat : at::kInt, cases.size() % 3 == 0});
    }
  }
  for (const bool indirect : {false, true}) {
    run_ranks(
        4,
        [&](World& world) {
          if (indirect) make_all_indirect(world);
          expect_same_as_one_by_one(world, cases, {});
          expect_same_as_one_by_one(world, cases, {.async_op = true});
          expect_same_as_one_by_one(world, cases, {.staging_budget = 1'000'000});
        },
        test_options());
  }
}

TEST(RedistributeLocalAllTest, ManyTensorsAreOneCollective) {
  for (const bool indirect : {false, true}) {
    on_every_rank_count([&](World& world) {
      if (indirect) make_all_indirect(world);
      const MeshShape mesh({world.size()});
      std::vector<MoveCase> cases;
      for (std::int64_t i = 1; i <= 20; ++i) {
        cases.push_back({Layout(mesh, {Shard(0)}, {i, 7}), Layout(mesh, {Shard(1)}, {i, 7}),
                         i % 2 == 0 ? at::kFloat : at::kDouble});
      }
      cases.push_back({cases[0].from, cases[0].from});
      const auto inputs = inputs_of(cases, world.rank());
      const auto changes = changes_of(cases);
      std::int64_t received = 0;
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const auto element = static_cast<std::int64_t>(c10::elementSize(cases[i].dtype));
        const auto plan = plan_redistribute(cases[i].from, cases[i].to, {.element_size = element});
        received += plan.for_rank(world.rank())->bound_bytes;
      }
      CommDebugMode mode;
      std::vector<at::Tensor> results;
      {
        const auto scope = mode.record();
        results = redistribute_local_all(inputs, changes);
      }
      EXPECT_TRUE(results.back().is_same(inputs.back()));
      ASSERT_EQ(mode.total_count(), world.size() == 1 ? 0 : 1);
      if (world.size() == 1) return;
      EXPECT_EQ(mode.count("all_to_all_single"), 1);
      EXPECT_EQ(mode.records().front().received_bytes, received);
      EXPECT_EQ(mode.records().front().cause, "redistribute_all of 21 tensors");
    });
  }
}

TEST(RedistributeLocalAllTest, AsynchronousResultsArriveTogether) {
  run_ranks(
      2,
      [](World& world) {
        const MeshShape mesh({2});
        const Layout rows(mesh, {Shard(0)}, {4, 4});
        const Layout columns(mesh, {Shard(1)}, {4, 4});
        const std::vector<at::Tensor> inputs = {at::ones({2, 4}), at::ones({2, 4}, at::kLong)};
        const std::vector<LayoutChange> changes(2, {rows, columns});
        const Group group = world.group({1, 0});
        std::vector<at::Tensor> moved;
        // Rank 0 returns although rank 1 calls only afterwards.
        if (world.rank() == 0) moved = redistribute_local_all(inputs, changes, {.async_op = true});
        barrier(group);
        if (world.rank() == 1) moved = redistribute_local_all(inputs, changes, {.async_op = true});
        EXPECT_TRUE(is_pending(moved[0]) && is_pending(moved[1]));
        EXPECT_EQ(moved[1].sum().item<std::int64_t>(), 8);
        EXPECT_EQ(moved[0].sum().item<float>(), 8);
        EXPECT_FALSE(is_pending(moved[0]));
      },
      test_options());
}

TEST(RedistributeLocalAllTest, WrongCallsAreRefused) {
  const MeshShape mesh({2});
  const Layout rows(mesh, {Shard(0)}, {4, 4});
  const Layout columns(mesh, {Shard(1)}, {4, 4});
  const std::vector<LayoutChange> changes(2, {rows, columns});
  const auto failure = [&](const std::vector<at::Tensor>& locals) {
    return failure_of(2, [&](World&) { (void)redistribute_local_all(locals, changes); });
  };
  EXPECT_THAT(failure({at::ones({2, 4})}),
              HasSubstr("redistribute_local_all: 1 tensor(s) given for 2 change(s) of layout"));
  EXPECT_THAT(failure({at::ones({2, 4}), at::Tensor()}),
              HasSubstr("redistribute_local_all: tensor 1: an undefined tensor given; pass"));
  EXPECT_THAT(
      failure({at::ones({2, 4}), at::ones({4, 4})}),
      HasSubstr("redistribute_local_all: tensor 1: a local tensor of shape [4,4] given; in "));
}

TEST(RedistributeLocalAllTest, ARankWithWrongArgumentsTellsTheOthers) {
  const MeshShape mesh({3});
  const Layout rows(mesh, {Shard(0)}, {6, 6});
  const Layout columns(mesh, {Shard(1)}, {6, 6});
  for (const bool indirect : {false, true}) {
    std::atomic<int> told = 0;
    run_ranks(
        3,
        [&](World& world) {
          if (indirect) make_all_indirect(world);
          const bool is_wrong = world.rank() == 1;
          const std::vector<at::Tensor> locals = {at::ones({2, 6}),
                                                  at::ones({is_wrong ? 3 : 2, 6})};
          try {
            (void)redistribute_local_all(locals, std::vector<LayoutChange>(2, {rows, columns}));
          } catch (const InvalidArgument& error) {
            EXPECT_TRUE(is_wrong);
            EXPECT_THAT(error.what(), HasSubstr("tensor 1: a local tensor of shape [3,6] given"));
            ++told;
          } catch (const CommError& error) {
            EXPECT_FALSE(is_wrong);
            EXPECT_THAT(error.what(),
                        HasSubstr("invalid: redistribute_local_all: tensor 1: a local"));
            ++told;
          }
        },
        test_options());
    EXPECT_EQ(told, 3);
  }
}

TEST(RedistributeLocalAllTest, AllAgreeBeforeAnyOfSeveralTripsBegins) {
  // The first tensor is large and goes alone; the ranks differ in the last one.
  const MeshShape mesh({2});
  const Layout sums(mesh, {Partial()}, {1 << 20});
  const Layout copies(mesh, {Replicate()}, {1 << 20});
  const Layout rows(mesh, {Shard(0)}, {4, 4});
  const Layout columns(mesh, {Shard(1)}, {4, 4});
  std::atomic<int> failures = 0;
  run_ranks(
      2,
      [&](World& world) {
        const auto last = world.rank() == 0 ? at::kFloat : at::kInt;
        const std::vector<at::Tensor> locals = {at::ones({1 << 20}), at::ones({2, 4}),
                                                at::ones({2, 4}, last)};
        const std::vector<LayoutChange> changes = {
            {sums, copies}, {rows, columns}, {rows, columns}};
        CommDebugMode traffic;
        const auto scope = traffic.record();
        try {
          (void)redistribute_local_all(locals, changes, {.staging_budget = 10'000'000});
        } catch (const CommError& error) {
          EXPECT_THAT(error.what(),
                      HasSubstr("3 tensors, staging budget 10000000: Float [1048576]"));
          ++failures;
        }
        EXPECT_EQ(traffic.total_count(), 0);
      },
      test_options());
  EXPECT_EQ(failures, 2);
}

TEST(RedistributeLocalAllTest, MismatchedListsFailOnAllRanks) {
  const MeshShape mesh({2});
  const Layout rows(mesh, {Shard(0)}, {4, 4});
  const Layout columns(mesh, {Shard(1)}, {4, 4});
  const Layout whole(mesh, {Replicate()}, {4, 4});
  for (const bool indirect : {false, true}) {
    std::atomic<int> failures = 0;
    run_ranks(
        2,
        [&](World& world) {
          if (indirect) make_all_indirect(world);
          std::vector<LayoutChange> changes(3, {rows, columns});
          if (world.rank() == 1) changes[1].to = whole;
          try {
            (void)redistribute_local_all(std::vector<at::Tensor>(3, at::ones({2, 4})), changes);
          } catch (const CommError& error) {
            EXPECT_THAT(error.what(), HasSubstr("the ranks do not agree: rank 0 calls"));
            EXPECT_THAT(error.what(),
                        HasSubstr("(3 tensors: Float [4,4][S(0)] on [2] to [4,4][S(1)]"));
            EXPECT_THAT(error.what(), HasSubstr("to [4,4][R] on [2]"));
            ++failures;
          }
        },
        test_options());
    EXPECT_EQ(failures, 2);
  }
}

}  // namespace
}  // namespace tessera::test
