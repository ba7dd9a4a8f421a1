#include "tessera/plan/step.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "plan/spelled_plan.h"
#include "support/local_array.h"
#include "support/simulator.h"

namespace tessera::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StepTest, EveryKindHasItsName) {
  EXPECT_STREQ(to_string(StepKind::slice), "slice");
  EXPECT_STREQ(to_string(StepKind::fill), "fill");
  EXPECT_STREQ(to_string(StepKind::all_gather), "all_gather");
  EXPECT_STREQ(to_string(StepKind::reduce_scatter), "reduce_scatter");
  EXPECT_STREQ(to_string(StepKind::all_reduce), "all_reduce");
  EXPECT_STREQ(to_string(StepKind::all_to_all), "all_to_all");
  EXPECT_STREQ(to_string(StepKind::exchange), "exchange");
}

TEST(StepTest, PrintsWhereItTalksAndWhatChanges) {
  const Layout sharded = spelled("dp=2,tp=2", "R,S0", {8, 8});
  const Layout whole = spelled("dp=2,tp=2", "R,R", {8, 8});
  EXPECT_EQ(concat(step_of(StepKind::all_gather, sharded, whole, {1}, 0)),
            "all_gather(tp, dim 0): [R,S(0)] -> [R,R]");
  EXPECT_EQ(concat(step_of(StepKind::slice, whole, sharded)), "slice: [R,R] -> [R,S(0)]");
}

TEST(StepTest, PrintsMeshDimsWithoutNamesByNumberAndRoundsWhenThereAreSeveral) {
  Step step =
      step_of(StepKind::exchange, spelled("2,2", "S0,R", {8}), spelled("2,2", "R,S0", {8}), {0, 1});
  step.rounds = 3;
  EXPECT_EQ(concat(step), "exchange(mesh dim 0, mesh dim 1): [S(0),R] -> [R,S(0)] in 3 rounds");
}

TEST(StepTest, PrintsBothMeshesWhenTheyDiffer) {
  const Step step = exchange_step(spelled("2", "S0", {8}), spelled("2,2", "S0,R", {8}));
  EXPECT_EQ(concat(step), "exchange: [S(0)] -> [S(0),R] from [2] to [2, 2]");
}

TEST(StepTest, PrintsAShardOrderThatIsNotLeftToRight) {
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  const Layout outer(mesh, {Shard(0), Shard(0)}, {8});
  const Layout inner(mesh, {Shard(0), Shard(0)}, {8}, {1, 0});
  EXPECT_EQ(concat(step_of(StepKind::exchange, outer, inner, {0, 1})),
            "exchange(dp, tp): [S(0),S(0)] -> [S(0),S(0)]{dim 0: tp,dp}");
}

TEST(StepTest, SlicesAndFillsAreLocal) {
  const Layout layout = spelled("2", "R", {8});
  for (const auto kind : {StepKind::slice, StepKind::fill}) {
    EXPECT_TRUE(step_of(kind, layout, layout).is_local());
  }
  for (const auto kind : {StepKind::all_gather, StepKind::reduce_scatter, StepKind::all_reduce,
                          StepKind::all_to_all, StepKind::exchange}) {
    EXPECT_FALSE(step_of(kind, layout, layout).is_local());
  }
}

TEST(StepGroupTest, RanksComeInTheOrderOfTheirShards) {
  const MeshShape mesh({2, 3}, {"dp", "tp"}, {10, 11, 12, 20, 21, 22});
  const Layout from(mesh, {Shard(0), Shard(0)}, {12}, {1, 0});
  const Layout to(mesh, {Replicate(), Replicate()}, {12});
  // tp cuts first, so dp varies fastest.
  EXPECT_THAT(step_group(step_of(StepKind::all_gather, from, to, {1, 0}, 0), 11),
              ElementsAre(10, 20, 11, 21, 12, 22));
  EXPECT_THAT(step_group(step_of(StepKind::all_gather, from, to, {0}, 0), 11), ElementsAre(11, 21));
}

TEST(StepGroupTest, RefusesStepsWithoutGroups) {
  const Step slice =
      step_of(StepKind::slice, spelled("tp=2", "R", {8}), spelled("tp=2", "S0", {8}));
  EXPECT_THAT([&] { return step_group(slice, 0); },
              throws_invalid_argument("step_group: slice: [R] -> [S(0)] given; only a collective "
                                      "along mesh dims has groups"));
}

TEST(StepGroupTest, RefusesARankOutside) {
  const Step gather =
      step_of(StepKind::all_gather, spelled("tp=2", "S0", {8}), spelled("tp=2", "R", {8}), {0}, 0);
  EXPECT_THAT([&] { return step_group(gather, 2); },
              throws_invalid_argument("MeshShape::slice: rank 2 is not in [tp=2]; a slice passes "
                                      "through one of the mesh's own ranks"));
}

/// Returns the local tensors after `step`, executed as messages whatever its kind.
Locals by_messages(Step step, const Locals& locals) {
  if (!step.is_local()) step.kind = StepKind::exchange;
  return simulate({step}, locals);
}

TEST(RankStepTest, CollectivesSpelledOutAsMessagesHaveTheSameEffect) {
  const std::vector<std::pair<const char*, const char*>> pairs = {
      {"S0,S0", "R,R"}, {"S0,S0", "S0,R"}, {"S0,R", "S1,R"},          {"P,P", "R,R"},
      {"P,R", "S0,R"},  {"P,P", "S1,S1"},  {"P(avg),P(sum)", "R,S0"}, {"S0,S1", "P(min),P(min)"}};
  Random random(3);
  for (const auto& [from, to] : pairs) {
    for (const auto& candidate : planned("2,3", from, to, {7, 5}).candidates()) {
      SCOPED_TRACE(concat(from, " to ", to, ": ", candidate.name));
      const DistributedTensor tensor = random_tensor(random, spelled("2,3", from, {7, 5}));
      Locals locals = tensor.locals;
      for (const auto& step : candidate.steps) locals = by_messages(step, locals);
      EXPECT_EQ(find_fault(spelled("2,3", to, {7, 5}), locals, tensor.value), "");
    }
  }
}

TEST(RankStepTest, ARankMessagesEachPeerAtMostOnce) {
  const Step step = exchange_step(spelled("4", "SS(0,3)", {24}), spelled("2,2", "SS(0,2),R", {24}));
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const RankStep own = rank_step(step, rank);
    for (const auto* messages : {&own.sends, &own.receives}) {
      std::vector<std::int64_t> peers;
      for (const auto& message : *messages) peers.push_back(message.peer);
      std::sort(peers.begin(), peers.end());
      EXPECT_EQ(std::adjacent_find(peers.begin(), peers.end()), peers.end());
    }
  }
}

TEST(RankStepTest, AScalarIsOneBoxWithoutExtents) {
  const Step step = exchange_step(spelled("2", "P", {}), spelled("2", "R", {}));
  const RankStep own = rank_step(step, 0);
  ASSERT_EQ(own.receives.size(), 2U);
  EXPECT_EQ(own.receives[0].numel, 1);
  EXPECT_EQ(own.receives[0].box_count, 1U);
  EXPECT_THAT(own.box(own.receives[0], 0), IsEmpty());
  const auto piece = own.piece(own.receives[0], 0);
  EXPECT_EQ(piece.numel, 1);
  EXPECT_EQ(piece.box_count, 1U);
}

/// A message of random boxes of a random local tensor, cut into random rounds.
struct RandomMessage {
  RankStep step;
  Message message;

  explicit RandomMessage(Random& random) {
    step.in_shape = random_shape(random, {.max_dims = 4, .max_size = 6, .max_numel = 6 * 6 * 6});
    for (auto& size : step.in_shape) size = std::max<std::int64_t>(size, 1);
    step.rounds = random.between(1, 12);
    message.first_box = static_cast<std::size_t>(random.between(0, 2));
    message.box_count = static_cast<std::size_t>(random.between(1, 4));
    for (std::size_t box = 0; box < message.first_box + message.box_count; ++box) {
      for (const auto size : step.in_shape) {
        const std::int64_t begin = random.between(0, size - 1);
        step.extents.push_back({begin, random.between(1, size - begin)});
      }
      if (box >= message.first_box) message.numel += numel_of(box - message.first_box);
    }
  }

  [[nodiscard]] std::int64_t numel_of(std::size_t box) const {
    std::int64_t numel = 1;
    for (const auto& extent : step.box(message, box)) numel *= extent.size;
    return numel;
  }

  /// How many boxes have elements among [begin, end) of the message.
  [[nodiscard]] std::size_t boxes_touched(std::int64_t begin, std::int64_t end) const {
    std::size_t touched = 0;
    std::int64_t passed = 0;
    for (std::size_t box = 0; box < message.box_count; ++box) {
      const std::int64_t next = passed + numel_of(box);
      if (passed < end && begin < next) ++touched;
      passed = next;
    }
    return touched;
  }
};

std::vector<std::size_t> elements_in(const Shape& shape, std::span<const Extent> extents,
                                     std::size_t box_count) {
  std::vector<std::size_t> elements;
  for (std::size_t box = 0; box < box_count; ++box) {
    for_each_in_box(shape, extents.subspan(box * shape.size(), shape.size()),
                    [&](std::size_t at) { elements.push_back(at); });
  }
  return elements;
}

void expect_pieces_tile(const RandomMessage& random) {
  const auto& [step, message] = random;
  const std::size_t ndim = step.in_shape.size();
  const auto whole = elements_in(
      step.in_shape, std::span(step.extents).subspan(message.first_box * ndim), message.box_count);
  std::vector<std::size_t> pieces;
  for (std::int64_t round = 0; round < step.rounds; ++round) {
    const auto piece = step.piece(message, round);
    EXPECT_EQ(piece.extents.size(), piece.box_count * ndim);
    EXPECT_GE(piece.numel, message.numel / step.rounds);
    EXPECT_LE(piece.numel, message.numel / step.rounds + 1);
    const auto begin = static_cast<std::int64_t>(pieces.size());
    const std::size_t touched = random.boxes_touched(begin, begin + piece.numel);
    EXPECT_LE(piece.box_count, touched * (ndim == 0 ? 1 : 2 * ndim - 1));
    const auto elements = elements_in(step.in_shape, piece.extents, piece.box_count);
    EXPECT_EQ(static_cast<std::int64_t>(elements.size()), piece.numel);
    pieces.insert(pieces.end(), elements.begin(), elements.end());
  }
  EXPECT_EQ(pieces, whole);
}

TEST(PieceTest, PiecesTileTheMessageInOrderAndEvenly) {
  for (std::uint64_t seed = 0; seed < 5'000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    Random random(seed);
    expect_pieces_tile(RandomMessage(random));
  }
}

TEST(PieceTest, MoreRoundsThanElementsLeaveEmptyPieces) {
  RankStep step;
  step.in_shape = {2};
  step.rounds = 3;
  step.extents = {{0, 2}};
  Message message;
  message.numel = 2;
  message.box_count = 1;
  EXPECT_EQ(step.piece(message, 1).numel, 1);
  EXPECT_EQ(step.piece(message, 2).numel, 0);
  EXPECT_EQ(step.piece(message, 2).box_count, 0U);
  EXPECT_THAT(step.piece(message, 2).extents, IsEmpty());
}

TEST(PieceTest, RefusesARoundOutOfRange) {
  RankStep step;
  step.rounds = 2;
  EXPECT_THAT([&] { return step.piece(Message{}, 2); },
              throws_invalid_argument("RankStep::piece: round 2 given; the step has 2"));
  EXPECT_THAT([&] { return step.piece(Message{}, -1); },
              throws_invalid_argument("RankStep::piece: round -1 given; the step has 2"));
}

}  // namespace
}  // namespace tessera::test
