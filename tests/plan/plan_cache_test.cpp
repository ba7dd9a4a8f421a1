#include "tessera/plan/plan_cache.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "plan/cache_capacity.h"
#include "plan/spelled_plan.h"
#include "tessera/base/error.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {
namespace {

/// Plans a question of its own for every `number`.
RedistributePlan ask(std::int64_t number, const PlanOptions& options = {}) {
  return planned("4", "S0", "S1", {8, number}, options);
}

void expect_counts(std::uint64_t hits, std::uint64_t misses) {
  const PlanCacheInfo info = plan_cache_info();
  EXPECT_EQ(info.hits, hits);
  EXPECT_EQ(info.misses, misses);
}

TEST(PlanCacheTest, KeepsAThousandPlansUnlessToldOtherwise) {
  EXPECT_EQ(plan_cache_info().capacity, 1024U);
}

TEST(PlanCacheTest, TheSameQuestionHits) {
  const CacheCapacity cache(4);
  const auto first = ask(1);
  expect_counts(0, 1);
  const auto second = ask(1);
  expect_counts(1, 1);
  EXPECT_EQ(&first.steps(), &second.steps());
  EXPECT_EQ(plan_cache_info().size, 1U);
}

TEST(PlanCacheTest, EveryPartOfTheQuestionCounts) {
  const CacheCapacity cache(100);
  (void)ask(1);
  (void)ask(2);
  (void)ask(1, {.element_size = 8});
  (void)ask(1, {.staging_budget = 10'000});
  (void)ask(1, {.cost = {.launch_ps = 1}});
  (void)ask(1, {.cost = {.message_ps = 1}});
  (void)ask(1, {.cost = {.byte_ps = 1}});
  (void)ask(1, {.cost = {.packed_byte_ps = 1}});
  (void)planned("4", "S1", "S0", {8, 1});
  (void)planned("tp=4", "S0", "S1", {8, 1});
  expect_counts(0, 10);
  EXPECT_EQ(plan_cache_info().size, 10U);
}

TEST(PlanCacheTest, TheLeastRecentlyUsedGoesFirst) {
  const CacheCapacity cache(2);
  (void)ask(1);
  (void)ask(2);
  (void)ask(1);  // Now 2 is the older one.
  (void)ask(3);
  expect_counts(1, 3);
  EXPECT_EQ(plan_cache_info().size, 2U);
  (void)ask(1);
  (void)ask(3);
  expect_counts(3, 3);
  (void)ask(2);
  expect_counts(3, 4);
}

TEST(PlanCacheTest, NeverHoldsMoreThanItsCapacity) {
  const CacheCapacity cache(5);
  for (std::int64_t number = 1; number <= 50; ++number) {
    (void)ask(number);
    EXPECT_LE(plan_cache_info().size, 5U);
  }
  EXPECT_EQ(plan_cache_info().size, 5U);
}

TEST(PlanCacheTest, ASmallerCapacityDropsTheOldest) {
  const CacheCapacity cache(4);
  for (std::int64_t number = 1; number <= 4; ++number) (void)ask(number);
  set_plan_cache_capacity(1);
  EXPECT_EQ(plan_cache_info().size, 1U);
  (void)ask(4);
  expect_counts(1, 4);
}

TEST(PlanCacheTest, CapacityZeroKeepsNothing) {
  const CacheCapacity cache(0);
  const auto first = ask(1);
  const auto second = ask(1);
  expect_counts(0, 2);
  EXPECT_EQ(plan_cache_info().size, 0U);
  EXPECT_NE(&first.steps(), &second.steps());
}

TEST(PlanCacheTest, ClearForgetsPlansAndCountsButNotTheCapacity) {
  const CacheCapacity cache(7);
  const auto plan = ask(1);
  (void)ask(1);
  clear_plan_cache();
  expect_counts(0, 0);
  EXPECT_EQ(plan_cache_info().size, 0U);
  EXPECT_EQ(plan_cache_info().capacity, 7U);
  // Plans in use stay valid.
  EXPECT_EQ(plan.steps().size(), 1U);
  EXPECT_EQ(plan.for_rank(0)->bound_bytes, (8 - 2) * 4);
}

TEST(PlanCacheTest, ARefusedQuestionIsNotKept) {
  const CacheCapacity cache(4);
  for (int i = 0; i < 2; ++i) EXPECT_THROW((void)ask(1, {.element_size = 0}), InvalidArgument);
  expect_counts(0, 2);
  EXPECT_EQ(plan_cache_info().size, 0U);
}

TEST(PlanCacheTest, ThreadsAtOnceGetTheSamePlan) {
  constexpr std::size_t kThreads = 8;
  constexpr std::int64_t kQuestions = 20;
  const CacheCapacity cache(8);  // Fewer than questions, so that eviction runs too.
  std::vector<std::string> answers(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (std::int64_t number = 1; number <= kQuestions; ++number) {
        const auto plan = ask(number);
        answers[i] += concat(plan.cost_ps(), ' ', joined(printed(plan.steps())), ' ',
                             plan.for_rank(2)->traffic.received_bytes, '\n');
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& answer : answers) EXPECT_EQ(answer, answers.front());
  const PlanCacheInfo info = plan_cache_info();
  EXPECT_EQ(info.hits + info.misses, kThreads * static_cast<std::uint64_t>(kQuestions));
  EXPECT_LE(info.size, 8U);
}

}  // namespace
}  // namespace tessera::test
