#include "tessera/comm/redistribute_local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include "comm/redistribute_oracle.h"
#include "support/random_layout.h"
#include "support/rank_test.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/traffic.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using ::testing::HasSubstr;

// Divides, does not, is smaller than the mesh, has no elements, has no dims.
const std::vector<Shape> kShapes = {{8, 6}, {5, 3}, {2}, {0, 4}, {}};
constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble,   at::kLong,
                                      at::kBool,  at::kBFloat16, at::kComplexFloat};

void expect_every_pair(const MeshShape& mesh, const Shape& shape, const PairOptions& pairs = {},
                       const MoveOptions& options = {}) {
  expect_moves(mesh.num_ranks(), every_pair(mesh, mesh, shape, pairs), options);
}

/// The same between two meshes, for all shapes, in dtypes that take turns.
void expect_every_pair_in_turn(std::int64_t ranks, const MeshShape& from, const MeshShape& to,
                               bool all_kinds = true) {
  constexpr std::size_t kTurns = std::size(kDtypes);
  for (std::size_t shape = 0; shape < kShapes.size(); ++shape) {
    for (std::size_t i = 0; i < kTurns; ++i) {
      const PairOptions pairs{.dtype = kDtypes[(i + shape) % kTurns],
                              .all_kinds = all_kinds,
                              .every = kTurns,
                              .first = i,
                              .strided_phase = shape};
      expect_moves(ranks, every_pair(from, to, kShapes[shape], pairs));
    }
  }
}

TEST(RedistributeLocalTest, EveryPairOnOneDimMeshes) {
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const Shape& shape : kShapes) {
      std::size_t number = 0;
      for (const auto dtype : kDtypes) {
        expect_every_pair(MeshShape({ranks}), shape, {.dtype = dtype, .strided_phase = number++});
      }
    }
  }
}

TEST(RedistributeLocalTest, EveryPairInOtherDtypes) {
  for (const auto dtype : {at::kHalf, at::kByte, at::kInt}) {
    expect_every_pair(MeshShape({3}), {5, 4}, {.dtype = dtype});
  }
}

TEST(RedistributeLocalTest, EveryPairWithOtherReductionsAndSplits) {
  for (const MeshShape& mesh : {MeshShape({3}), MeshShape({2, 2})}) {
    PairOptions pairs{.dtype = at::kDouble, .split_factor = 3};
    for (const auto op : {ReduceOp::min, ReduceOp::product, ReduceOp::avg}) {
      pairs.other_op = op;
      expect_every_pair(mesh, {5, 4}, pairs);
    }
    pairs.dtype = at::kLong;
    for (const auto op : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
      pairs.other_op = op;
      expect_every_pair(mesh, {5, 4}, pairs);
    }
  }
}

TEST(RedistributeLocalTest, EveryPairOnTwoDimMeshes) {
  for (const MeshShape& mesh : {MeshShape({2, 2}, {"dp", "tp"}), MeshShape({3, 2})}) {
    expect_every_pair_in_turn(mesh.num_ranks(), mesh, mesh);
  }
}

TEST(RedistributeLocalTest, EveryPairOnTwoDimMeshesInEveryDtype) {
  for (const auto dtype : kDtypes) {
    expect_every_pair(MeshShape({2, 2}), {5, 3}, {.dtype = dtype, .all_kinds = false});
  }
}

TEST(RedistributeLocalTest, EveryPairOnThreeDimMeshes) {
  expect_every_pair_in_turn(8, MeshShape({2, 2, 2}), MeshShape({2, 2, 2}), /*all_kinds=*/false);
}

TEST(RedistributeLocalTest, ManyPairsOfAllKindsOnThreeDimMeshes) {
  expect_every_pair(MeshShape({2, 2, 2}), {4, 9}, {.every = 41});
}

TEST(RedistributeLocalTest, EveryPairBetweenMeshes) {
  const MeshShape four({4});
  const MeshShape two({2}, {}, {2, 1});
  const MeshShape others({2}, {}, {0, 3});
  const MeshShape square({2, 2}, {"dp", "tp"}, {3, 2, 1, 0});
  for (const auto& [from, to] : {std::pair(four, two), std::pair(two, four), std::pair(two, others),
                                 std::pair(four, square), std::pair(square, two)}) {
    expect_every_pair_in_turn(4, from, to);
  }
}

TEST(RedistributeLocalTest, RandomPairsBetweenMeshes) {
  std::vector<MoveCase> cases;
  for (std::uint64_t seed = 1; cases.size() < 600; ++seed) {
    Random random(seed);
    const MeshOptions mesh{.max_dims = 2, .max_size = 3, .max_ranks = 6, .rank_maps = false};
    const auto spread = [&](const MeshShape& shape) {
      std::vector<std::int64_t> ranks{0, 1, 2, 3, 4, 5};
      random.shuffle(ranks);
      ranks.resize(static_cast<std::size_t>(shape.num_ranks()));
      return MeshShape(shape.sizes(), shape.names(), ranks);
    };
    const MeshShape from = spread(random_mesh(random, mesh));
    const MeshShape to = spread(random_mesh(random, mesh));
    const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 7, .max_numel = 100});
    const PlacementOptions options{.max_split_factor = 3,
                                   .partial_ops = {ReduceOp::sum, ReduceOp::max}};
    MoveCase test{random_layout_on(random, from, shape, options),
                  random_layout_on(random, to, shape, options), at::kDouble, random.one_in(2)};
    if (from.same_ranks(to) && !is_possible(test.from.placements(), test.to.placements())) continue;
    cases.push_back(test);
  }
  expect_moves(6, cases);
}

/// Big enough that the ranks share the work of one operation.
std::vector<MoveCase> large_cases() {
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  const Shape shape{515, 513};
  std::vector<MoveCase> cases;
  for (const char* from : {"S0,S1", "P,R", "R,S0", "P,P", "P(avg),S1"}) {
    for (const char* to : {"S1,S0", "R,R", "S0,R", "S1,S1"}) {
      cases.push_back({Layout(mesh, parse_placements(from), shape),
                       Layout(mesh, parse_placements(to), shape), at::kFloat,
                       cases.size() % 3 == 0});
    }
  }
  return cases;
}

TEST(RedistributeLocalTest, LargeTensorsAreSharedOutAmongTheRanks) {
  expect_moves(4, large_cases());
  expect_moves(4, large_cases(), {.in_flight = 5});
  expect_moves(4, large_cases(), {.indirect = true});
}

TEST(RedistributeLocalTest, EveryPairAsProcessesDoIt) {
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const Shape& shape : kShapes) {
      for (const auto dtype : {at::kFloat, at::kBool}) {
        expect_every_pair(MeshShape({ranks}), shape, {.dtype = dtype}, {.indirect = true});
      }
    }
  }
  expect_every_pair(MeshShape({2, 2}), {8, 4}, {}, {.indirect = true});
  expect_every_pair(MeshShape({3, 2}), {7, 3}, {}, {.indirect = true});
  const MeshShape four({4});
  const MeshShape two({2}, {}, {2, 1});
  expect_moves(4, every_pair(four, two, {5, 3}), {.indirect = true});
  expect_moves(4, every_pair(two, four, {5, 3}), {.indirect = true});
}

TEST(RedistributeLocalTest, SmallStagingBudgetsAreKept) {
  // An element for each of three peers is the least that can be asked for.
  for (const std::int64_t budget : {48, 64, 100, 1000}) {
    for (const bool indirect : {false, true}) {
      const PairOptions pairs{.all_kinds = false, .staging_budget = budget};
      expect_every_pair(MeshShape({4}), {9, 7}, pairs, {.indirect = indirect});
      expect_every_pair(MeshShape({2, 2}), {9, 7}, pairs, {.indirect = indirect});
    }
  }
}

TEST(RedistributeLocalTest, EveryPairAsynchronously) {
  for (const bool indirect : {false, true}) {
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      expect_every_pair(MeshShape({ranks}), {5, 3}, {}, {.indirect = indirect, .in_flight = 7});
    }
    expect_every_pair(MeshShape({2, 2}), {5, 3}, {}, {.indirect = indirect, .in_flight = 16});
    expect_every_pair(MeshShape({2, 2}), {9, 7}, {.all_kinds = false, .staging_budget = 64},
                      {.indirect = indirect, .in_flight = 3});
  }
}

TEST(RedistributeLocalTest, AsynchronousResultsWaitForTheirFirstUse) {
  on_every_rank_count([](World& world) {
    const MeshShape mesh({world.size()});
    const Layout rows(mesh, {Shard(0)}, {4, 8});
    const Layout columns(mesh, {Shard(1)}, {4, 8});
    const at::Tensor whole = at::arange(32, at::kFloat).view({4, 8});
    const at::Tensor local = part_of(whole, *rows.part_of(world.rank()));
    const at::Tensor want = part_of(whole, *columns.part_of(world.rank()));
    const at::Tensor moved = redistribute_local(local, rows, columns, {.async_op = true});
    EXPECT_EQ(is_pending(moved), world.size() > 1);
    EXPECT_EQ(moved.sizes(), want.sizes());
    EXPECT_TRUE(at::equal(moved + 1, want + 1));
    EXPECT_FALSE(is_pending(moved));
    // What is under way can be moved on, and dropped.
    const at::Tensor there = redistribute_local(local, rows, columns, {.async_op = true});
    const at::Tensor back = redistribute_local(there, columns, rows, {.async_op = true});
    EXPECT_TRUE(at::equal(wait(back), local));
    (void)redistribute_local(local, rows, columns, {.async_op = true});
  });
}

TEST(RedistributeLocalTest, AsynchronousResultsComeBeforeOthersHaveCalled) {
  // Rank 0 returns from its call although rank 1 makes its own only when it was told to.
  run_ranks(
      2,
      [](World& world) {
        const Layout rows(MeshShape({2}), {Shard(0)}, {4, 4});
        const Layout columns(MeshShape({2}), {Shard(1)}, {4, 4});
        const at::Tensor local = at::full({2, 4}, static_cast<float>(world.rank()));
        const Group group = world.group({1, 0});
        at::Tensor moved;
        if (world.rank() == 0) moved = redistribute_local(local, rows, columns, {.async_op = true});
        barrier(group);
        if (world.rank() == 1) moved = redistribute_local(local, rows, columns);
        EXPECT_EQ(moved.sum().item<float>(), 4.0F);
      },
      test_options());
}

TEST(RedistributeLocalTest, TrafficIsRecordedOncePerStep) {
  run_ranks(4, [](World& world) {
    const Layout rows(MeshShape({4}), {Shard(0)}, {8, 8});
    const Layout columns(MeshShape({4}), {Shard(1)}, {8, 8});
    const at::Tensor local = at::ones({2, 8});
    for (const bool async_op : {false, true}) {
      CommDebugMode mode;
      {
        const auto scope = mode.record();
        (void)wait(redistribute_local(local, rows, columns, {.async_op = async_op}));
        (void)redistribute_local(local, rows, rows);
      }
      ASSERT_EQ(mode.records().size(), 1U);
      const CommRecord& record = mode.records().front();
      EXPECT_EQ(record.name, std::string("all_to_all_single"));
      EXPECT_EQ(record.received_bytes, 48);
      EXPECT_EQ(record.rank, world.rank());
      EXPECT_THAT(record.cause, HasSubstr("redistribute [S(0)] -> [S(1)]"));
      EXPECT_GT(record.duration.count(), 0);
    }
  });
}

TEST(RedistributeLocalTest, NothingToMoveGivesBackTheSameTensor) {
  on_every_rank_count([](World& world) {
    const MeshShape mesh({world.size()});
    const Layout rows(mesh, {Shard(0)}, {4, 4});
    const Layout named(MeshShape({world.size()}, {"tp"}), {Shard(0)}, {4, 4});
    const at::Tensor local = at::ones(rows.local_shape(*mesh.position_of(world.rank())));
    EXPECT_TRUE(redistribute_local(local, rows, rows).is_same(local));
    EXPECT_TRUE(redistribute_local(local, rows, named).is_same(local));
  });
}

TEST(RedistributeLocalTest, BitsAreKept) {
  const MeshShape mesh({3});
  // Quiet and signalling NaNs, both zeros, subnormal numbers: no arithmetic would keep these.
  const std::vector<std::int64_t> bits = {0x7fc00001, -1, 0x80000000, 1,  0x7f800001, 0xffc12345, 7,
                                          8,          9,  0x80000001, 11, 12};
  const auto whole = torch::tensor(bits, at::kLong).to(at::kInt).view({4, 3});
  for (const bool indirect : {false, true}) {
    run_ranks(3, [&](World& world) {
      if (indirect) make_indirect(world, mesh);
      for (const auto& from : {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate()),
                               Placement(StridedShard(0, 2))}) {
        for (const auto& to : {Placement(Shard(0)), Placement(Shard(1)), Placement(Replicate()),
                               Placement(StridedShard(0, 2))}) {
          const Layout before(mesh, {from}, {4, 3});
          const Layout after(mesh, {to}, {4, 3});
          const auto own = part_of(whole, *before.part_of(world.rank()));
          const auto want = part_of(whole, *after.part_of(world.rank()));
          EXPECT_TRUE(at::equal(
              redistribute_local(own.view(at::kFloat), before, after).view(at::kInt), want));
          // bfloat16: the upper halves are NaNs and zeros too.
          const auto halves = [](const at::Tensor& x) {
            return x.view(at::kShort).slice(-1, 1, {}, 2).contiguous();
          };
          EXPECT_TRUE(at::equal(
              redistribute_local(halves(own).view(at::kBFloat16), before, after).view(at::kShort),
              halves(want)));
        }
      }
    });
  }
}

TEST(RedistributeLocalTest, MismatchedCallsFailOnAllRanks) {
  const Layout rows(MeshShape({2}), {Shard(0)}, {4, 4});
  const Layout columns(MeshShape({2}), {Shard(1)}, {4, 4});
  const Layout whole(MeshShape({2}), {Replicate()}, {4, 4});
  const std::string failure = failure_of(2, [&](World& world) {
    const Layout& to = world.rank() == 0 ? columns : whole;
    (void)redistribute_local(at::ones({2, 4}), rows, to);
  });
  EXPECT_THAT(failure, HasSubstr("the ranks do not agree"));
  EXPECT_THAT(failure, HasSubstr("[S(1)]"));
  EXPECT_THAT(failure, HasSubstr("[R]"));
}

TEST(RedistributeLocalTest, WrongLocalShapesAreRefused) {
  const Layout rows(MeshShape({2}), {Shard(0)}, {4, 4});
  const Layout columns(MeshShape({2}), {Shard(1)}, {4, 4});
  const std::string failure = failure_of(2, [&](World&) {
    (void)redistribute_local(at::ones({4, 4}), rows, columns);
  });
  EXPECT_THAT(failure, HasSubstr("redistribute_local: a local tensor of shape [4,4] given; in "));
  EXPECT_THAT(failure, HasSubstr("it is [2,4]"));
}

}  // namespace
}  // namespace tessera::test
