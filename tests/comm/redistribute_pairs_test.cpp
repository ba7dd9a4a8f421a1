#include "comm/redistribute_pairs.h"

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/redistribute_oracle.h"
#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/base/error.h"

namespace tessera::test {
namespace {

// What is exhaustive, with every rank's result compared to its slice of the whole tensor, and bit for
// bit wherever nothing is reduced. Kinds are plain (R, P(sum), S of every tensor dim) or all (P(max) and
// strided shards too); "memories" are a contiguous tensor and one that is not, at the beginning.
//
//   meshes                   pairs of      shapes        dtypes    memories
//   (1), (2), (3), (4)       all kinds     all five      all six   both
//   (2,2), (3,2)             plain kinds   all five      all six   both
//   (2,2), (3,2)             all kinds     all five      in turn   in turn
//   seven pairs of meshes    all kinds     all five      all six   both
//   (2,2,2)                  plain kinds   all five      in turn   in turn
//   (2,2,2)                  all kinds     {9}           in turn   in turn
//   (2,2,2)                  each 89th     all five      in turn   in turn
//
// "In turn" means that a pair and a shape meet one dtype of the six and one memory, and the next pair
// others. Complex numbers have no maximum: pairs with P(max) are float32 instead. ThreadSanitizer runs
// a seventh of all this, see `is_left_out`.

// Divides, does not, is smaller than the mesh, has no elements, has no dims.
const std::vector<Shape> kShapes = {{8, 6}, {5, 3}, {2}, {0, 4}, {}};
constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble,   at::kLong,
                                      at::kBool,  at::kBFloat16, at::kComplexFloat};

/// Tells how much was tried.
class RedistributePairsTest : public ::testing::Test {
 protected:
  void SetUp() override { (void)take_moves(); }
  void TearDown() override {
    const std::int64_t moves = take_moves();
    if (moves == 0) return;
    RecordProperty("moves", std::to_string(moves));
    std::cout << "[    moves ] " << moves << std::endl;
  }
};

void expect_every_pair(const MeshShape& mesh, const Shape& shape, const PairOptions& pairs = {},
                       const MoveOptions& options = {}) {
  expect_moves(mesh.num_ranks(), every_pair(mesh, mesh, shape, pairs), options);
}

/// Every pair between two meshes for all shapes, in all dtypes and both memories.
void expect_product(std::int64_t ranks, const MeshShape& from, const MeshShape& to,
                    bool all_kinds) {
  for (const Shape& shape : kShapes) {
    for (const auto dtype : kDtypes) {
      const PairOptions pairs{.dtype = dtype, .all_kinds = all_kinds, .both_memories = true};
      expect_moves(ranks, every_pair(from, to, shape, pairs));
    }
  }
}

/// Of all pairs each so manieth for a shape, in dtypes and memories that take turns.
void expect_in_turn(const MeshShape& mesh, const Shape& shape, const PairOptions& options,
                    std::size_t turn = 0) {
  constexpr std::size_t kTurns = std::size(kDtypes);
  for (std::size_t i = 0; i < kTurns; ++i) {
    PairOptions pairs = options;
    pairs.dtype = kDtypes[(i + turn) % kTurns];
    pairs.every = kTurns * options.every;
    pairs.first = i * options.every;
    pairs.strided_phase = turn;
    // Few pairs do not reach all turns.
    const auto cases = every_pair(mesh, mesh, shape, pairs);
    if (!cases.empty()) expect_moves(mesh.num_ranks(), cases);
  }
}

void expect_shapes_in_turn(const MeshShape& mesh, const PairOptions& options) {
  for (std::size_t i = 0; i < kShapes.size(); ++i) expect_in_turn(mesh, kShapes[i], options, i);
}

TEST_F(RedistributePairsTest, EveryPairOnOneDimMeshes) {
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    const MeshShape mesh({ranks});
    expect_product(ranks, mesh, mesh, /*all_kinds=*/true);
  }
}

TEST_F(RedistributePairsTest, EveryPairInOtherDtypes) {
  for (const auto dtype : {at::kHalf, at::kByte, at::kInt}) {
    expect_every_pair(MeshShape({3}), {5, 4}, {.dtype = dtype});
  }
}

TEST_F(RedistributePairsTest, EveryPairWithOtherReductionsAndSplits) {
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

TEST_F(RedistributePairsTest, EveryPlainPairOnTwoDimMeshes) {
  for (const MeshShape& mesh : {MeshShape({2, 2}), MeshShape({3, 2}, {"dp", "tp"})}) {
    expect_product(mesh.num_ranks(), mesh, mesh, /*all_kinds=*/false);
  }
}

TEST_F(RedistributePairsTest, EveryPairOnTwoDimMeshes) {
  for (const MeshShape& mesh : {MeshShape({2, 2}, {"dp", "tp"}), MeshShape({3, 2})}) {
    expect_shapes_in_turn(mesh, {});
  }
}

const MeshShape kCube({2, 2, 2});

TEST_F(RedistributePairsTest, EveryPlainPairOnThreeDimMeshes) {
  expect_shapes_in_turn(kCube, {.all_kinds = false});
}

TEST_F(RedistributePairsTest, EveryPairOfOneShapeOnThreeDimMeshes) {
  expect_in_turn(kCube, {9}, {});
}

TEST_F(RedistributePairsTest, ManyPairsOnThreeDimMeshes) {
  expect_shapes_in_turn(kCube, {.every = 89});
}

/// Meshes of some of four ranks, in several orders: the same ones, some of them, none of them, others
/// while some are outside of both.
std::vector<std::pair<MeshShape, MeshShape>> pairs_of_meshes() {
  const MeshShape four({4});
  const MeshShape two({2}, {}, {2, 1});
  const MeshShape disjoint({2}, {}, {0, 3});
  const MeshShape overlapping({2}, {}, {1, 3});
  const MeshShape square({2, 2}, {"dp", "tp"}, {3, 2, 1, 0});
  return {{four, two},    {two, four},   {two, disjoint}, {two, overlapping},
          {four, square}, {square, two}, {two, two}};
}

TEST_F(RedistributePairsTest, EveryPairBetweenMeshes) {
  for (const auto& [from, to] : pairs_of_meshes()) {
    expect_product(4, from, to, /*all_kinds=*/true);
  }
}

TEST_F(RedistributePairsTest, RandomPairsBetweenMeshes) {
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

TEST_F(RedistributePairsTest, LargeTensorsAreSharedOutAmongTheRanks) {
  expect_moves(4, large_cases());
  expect_moves(4, large_cases(), {.in_flight = 5});
  expect_moves(4, large_cases(), {.indirect = true});
}

TEST_F(RedistributePairsTest, EveryPairAsProcessesDoIt) {
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

TEST_F(RedistributePairsTest, SmallStagingBudgetsAreKept) {
  // An element for each of three peers is the least that can be asked for.
  for (const std::int64_t budget : {48, 64, 100, 1000}) {
    for (const bool indirect : {false, true}) {
      const PairOptions pairs{.all_kinds = false, .staging_budget = budget};
      expect_every_pair(MeshShape({4}), {9, 7}, pairs, {.indirect = indirect});
      expect_every_pair(MeshShape({2, 2}), {9, 7}, pairs, {.indirect = indirect});
    }
  }
}

TEST_F(RedistributePairsTest, EveryPairAsynchronously) {
  for (const bool indirect : {false, true}) {
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      expect_every_pair(MeshShape({ranks}), {5, 3}, {}, {.indirect = indirect, .in_flight = 7});
    }
    expect_every_pair(MeshShape({2, 2}), {5, 3}, {}, {.indirect = indirect, .in_flight = 16});
    expect_every_pair(MeshShape({2, 2}), {9, 7}, {.all_kinds = false, .staging_budget = 64},
                      {.indirect = indirect, .in_flight = 3});
  }
}

TEST_F(RedistributePairsTest, SanitizedRunsShareTheCases) {
  for (std::size_t number = 0; number < 1000; ++number) {
    std::size_t parts = 0;
    for (std::size_t part = 0; part < 7; ++part) parts += is_in_part(number, part) ? 1 : 0;
    EXPECT_EQ(parts, 1U) << number;
  }
  EXPECT_EQ(part_named(nullptr), 0U);
  EXPECT_EQ(part_named(""), 0U);
  EXPECT_EQ(part_named("6"), 6U);
  for (const char* wrong : {"7", "-1", "06", "x"}) {
    try {
      (void)part_named(wrong);
      ADD_FAILURE() << wrong << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(),
                concat("TESSERA_TSAN_PART=", wrong, " given; it is a number from 0 to 6"));
    }
  }
}

}  // namespace
}  // namespace tessera::test
