#include "tessera/plan/batch_plan.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>

#include "support/random_layout.h"
#include "support/simulator.h"
#include "tessera/base/concat.h"
#include "tessera/base/error.h"

namespace tessera::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Layout placed(const char* placements, Shape shape, const MeshShape& mesh = MeshShape({4})) {
  return Layout(mesh, parse_placements(placements), std::move(shape));
}

BatchItem item(const char* from, const char* to, const Shape& shape,
               const MeshShape& mesh = MeshShape({4})) {
  return {placed(from, shape, mesh), placed(to, shape, mesh)};
}

TEST(BatchPlanTest, SmallTensorsTravelTogether) {
  const std::vector<BatchItem> items = {item("S0", "S1", {8, 8}), item("S0", "R", {5}),
                                        item("P", "S0", {3, 2}), item("P", "R", {16})};
  const BatchPlan plan = plan_redistribute_all(items);
  ASSERT_EQ(plan.batches.size(), 1U);
  EXPECT_THAT(plan.batches[0].items, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(plan.alone, IsEmpty());
  for (const auto& step : plan.batches[0].steps) {
    EXPECT_EQ(step.kind, StepKind::exchange);
    EXPECT_EQ(step.rounds, 1);
  }
}

TEST(BatchPlanTest, WhatDoesNotTravelIsLeftAlone) {
  const std::vector<BatchItem> items = {item("S0", "S0", {8, 8}), item("S0", "S1", {8, 8}),
                                        item("R", "S0", {8, 8}), item("S0", "S1", {0, 8}),
                                        item("S1", "S0", {8, 8})};
  const BatchPlan plan = plan_redistribute_all(items);
  ASSERT_EQ(plan.batches.size(), 1U);
  EXPECT_THAT(plan.batches[0].items, ElementsAre(1, 4));
  EXPECT_THAT(plan.alone, ElementsAre(0, 2, 3));
  EXPECT_THAT(plan_redistribute_all({}).batches, IsEmpty());
}

TEST(BatchPlanTest, OneTensorIsNoBatch) {
  const std::vector<BatchItem> items = {item("R", "R", {8}), item("S0", "R", {8})};
  const BatchPlan plan = plan_redistribute_all(items);
  EXPECT_THAT(plan.batches, IsEmpty());
  EXPECT_THAT(plan.alone, ElementsAre(0, 1));
}

TEST(BatchPlanTest, LargeReductionsToAllFollowTheirOwnPlan) {
  // Straight to everybody it is three times the tensor; as a reduce_scatter and an all_gather half.
  const std::vector<BatchItem> items = {item("P", "R", {1 << 20}), item("S0", "S1", {64, 64}),
                                        item("P", "R", {64}), item("S1", "S0", {1024, 1024})};
  const BatchPlan plan = plan_redistribute_all(items);
  ASSERT_EQ(plan.batches.size(), 1U);
  EXPECT_THAT(plan.batches[0].items, ElementsAre(1, 2, 3));
  EXPECT_THAT(plan.alone, ElementsAre(0));
}

TEST(BatchPlanTest, AskForTheRanksThatTalkOnly) {
  const MeshShape mesh({2, 2}, {"dp", "tp"}, {3, 1, 2, 0});
  const std::vector<BatchItem> along_tp = {item("R,S0", "R,R", {8}, mesh),
                                           item("S0,S1", "S0,R", {8, 8}, mesh)};
  const Batch batch = plan_redistribute_all(along_tp).batches.at(0);
  EXPECT_THAT(batch.ranks_with(3), ElementsAre(1, 3));
  EXPECT_THAT(batch.ranks_with(0), ElementsAre(0, 2));
  EXPECT_THAT(batch.ranks_with(7), IsEmpty());
  const std::vector<BatchItem> along_both = {item("R,S0", "R,R", {8}, mesh),
                                             item("S0,R", "R,R", {8}, mesh)};
  EXPECT_THAT(plan_redistribute_all(along_both).batches.at(0).ranks_with(3),
              ElementsAre(0, 1, 2, 3));
  // Another mesh brings in its ranks.
  const MeshShape pair({2}, {}, {4, 5});
  std::vector<BatchItem> to_others = along_tp;
  to_others.push_back({placed("R,S0", {8}, mesh), placed("S0", {8}, pair)});
  EXPECT_THAT(plan_redistribute_all(to_others).batches.at(0).ranks_with(5),
              ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(BatchPlanTest, ErrorsNameTheTensor) {
  const std::vector<BatchItem> items = {item("S0", "R", {8}), item("P(max)", "P(sum)", {8})};
  try {
    (void)plan_redistribute_all(items);
    ADD_FAILURE() << "did not throw";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("redistribute_all: tensor 1: redistribute: mesh dim 0"));
  }
}

/// The bytes of a rank's messages, as they are packed: those for one peer together, then padded.
std::int64_t packed_bytes(const Batch& batch, std::span<const BatchItem> items, std::int64_t rank) {
  std::map<std::int64_t, std::int64_t> sent;
  std::map<std::int64_t, std::int64_t> received;
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const RankStep own = rank_step(batch.steps[i], rank);
    const std::int64_t element = items[batch.items[i]].element_size;
    for (const auto& message : own.sends) sent[message.peer] += message.numel * element;
    for (const auto& message : own.receives) received[message.peer] += message.numel * element;
  }
  std::int64_t total = 0;
  for (const auto* side : {&sent, &received}) {
    for (const auto& [peer, bytes] : *side) {
      if (peer == rank) continue;
      total += (bytes + kBatchAlignment - 1) / kBatchAlignment * kBatchAlignment;
    }
  }
  return total;
}

TEST(BatchPlanTest, RandomBatchesMoveEverythingWithinTheBudget) {
  std::size_t batched = 0;
  for (std::uint64_t seed = 0; seed < 300 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(concat("seed ", seed));
    Random random(seed);
    const MeshOptions meshes{.max_dims = 2, .max_size = 3, .max_ranks = 6, .rank_maps = true};
    const MeshShape mesh = random_mesh(random, meshes);
    std::vector<BatchItem> items;
    const auto count = random.between(1, 8);
    for (std::int64_t i = 0; i < count; ++i) {
      const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 9, .max_numel = 100});
      const PlacementOptions placements{.max_split_factor = 3, .partial_ops = {ReduceOp::sum}};
      const MeshShape to = random.one_in(4) ? random_mesh(random, meshes) : mesh;
      items.push_back({random_layout_on(random, mesh, shape, placements),
                       random_layout_on(random, to, shape, placements),
                       random.pick(std::vector<std::int64_t>{1, 2, 4, 8, 16})});
    }
    const std::int64_t budget =
        random.one_in(2) ? PlanOptions().staging_budget : random.between(2000, 6000);
    const BatchPlan plan = plan_redistribute_all(items, {.staging_budget = budget});
    std::vector<std::size_t> seen = plan.alone;
    for (const auto& batch : plan.batches) {
      EXPECT_GT(batch.items.size(), 1U);
      EXPECT_LE(batch.staging_bytes, budget);
      batched += batch.items.size();
      seen.insert(seen.end(), batch.items.begin(), batch.items.end());
      for (std::size_t i = 0; i < batch.items.size(); ++i) {
        const BatchItem& each = items[batch.items[i]];
        const DistributedTensor tensor = random_tensor(random, each.from);
        EXPECT_EQ(find_fault(each.to, simulate({batch.steps[i]}, tensor.locals), tensor.value), "");
        for (const auto rank : each.from.mesh().ranks()) {
          const auto together = batch.ranks_with(rank);
          for (const auto& message : rank_step(batch.steps[i], rank).sends) {
            EXPECT_TRUE(std::binary_search(together.begin(), together.end(), message.peer));
            EXPECT_EQ(batch.ranks_with(message.peer), together);
          }
          EXPECT_LE(packed_bytes(batch, items, rank), batch.staging_bytes);
        }
      }
    }
    std::sort(seen.begin(), seen.end());
    for (std::size_t i = 0; i < items.size(); ++i) EXPECT_EQ(seen.at(i), i);
    EXPECT_EQ(seen.size(), items.size());
  }
  EXPECT_GT(batched, 300U) << "too few tensors travel together for this to say anything";
}

}  // namespace
}  // namespace tessera::test
