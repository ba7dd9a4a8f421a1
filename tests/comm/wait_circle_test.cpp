#include "tessera/comm/wait_circle.h"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/random_layout.h"

namespace tessera::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Whom each rank waits for.
using Waits = std::map<std::int64_t, std::vector<std::int64_t>>;

WaitCircle circle_through(std::int64_t rank, const Waits& waits) {
  return find_wait_circle(rank, [&](std::int64_t each) {
    const auto found = waits.find(each);
    return found == waits.end() ? std::vector<std::int64_t>() : found->second;
  });
}

TEST(WaitCircleTest, BeginsWithTheLowestRankWhoeverLooks) {
  const Waits waits = {{0, {2}}, {1, {0}}, {2, {1}}};
  for (const std::int64_t rank : {0, 1, 2}) {
    EXPECT_THAT(circle_through(rank, waits), ElementsAre(0, 2, 1));
  }
}

TEST(WaitCircleTest, IsNotFoundByThoseOutside) {
  // 3 waits for 0, which is in a circle with 1; 1 waits for 2 as well, which waits for nobody.
  const Waits waits = {{0, {1}}, {1, {2, 0}}, {3, {0}}};
  EXPECT_THAT(circle_through(0, waits), ElementsAre(0, 1));
  EXPECT_THAT(circle_through(1, waits), ElementsAre(0, 1));
  EXPECT_THAT(circle_through(2, waits), IsEmpty());
  EXPECT_THAT(circle_through(3, waits), IsEmpty());
}

TEST(WaitCircleTest, TheShortestIsFound) {
  const Waits waits = {{0, {1, 3}}, {1, {2}}, {2, {0}}, {3, {0}}};
  EXPECT_THAT(circle_through(0, waits), ElementsAre(0, 3));
  EXPECT_THAT(circle_through(1, waits), ElementsAre(0, 1, 2));
}

TEST(WaitCircleTest, MayBeOneRankAlone) {
  EXPECT_THAT(circle_through(5, {{5, {5}}}), ElementsAre(5));
  EXPECT_THAT(circle_through(4, {{4, {5}}, {5, {5}}}), IsEmpty());
}

TEST(WaitCircleTest, SaysWhoWaitsForWhom) {
  const auto call_of = [](std::int64_t rank) {
    return WaitingCall{rank == 1 ? "barrier()" : "send(float32[4] tag 0)", "dp"};
  };
  EXPECT_EQ(describe_wait_circle({1, 4, 2}, call_of),
            "deadlock, nobody can go on: rank 1 waits in barrier() on group dp for rank 4; rank 4 "
            "waits in send(float32[4] tag 0) on group dp for rank 2; rank 2 waits in "
            "send(float32[4] tag 0) on group dp for rank 1");
}

/// All that can be reached from `rank`, by going on for as long as there are new ones.
std::set<std::int64_t> reached_from(std::int64_t rank, const Waits& waits) {
  std::set<std::int64_t> reached;
  std::size_t before = 0;
  do {
    before = reached.size();
    for (const auto& [waiting, awaited] : waits) {
      if (waiting != rank && !reached.contains(waiting)) continue;
      reached.insert(awaited.begin(), awaited.end());
    }
  } while (reached.size() > before);
  return reached;
}

TEST(WaitCircleTest, IsFoundWhereverARankWaitsForItselfInTheEnd) {
  int circles = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    test::Random random(seed);
    const std::int64_t ranks = random.between(1, 7);
    Waits waits;
    for (auto count = random.between(0, 2 * ranks); count > 0; --count) {
      waits[random.between(0, ranks - 1)].push_back(random.between(0, ranks - 1));
    }
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const auto circle = circle_through(rank, waits);
      ASSERT_EQ(!circle.empty(), reached_from(rank, waits).contains(rank));
      if (circle.empty()) continue;
      ++circles;
      EXPECT_THAT(circle, ::testing::Contains(rank));
      EXPECT_EQ(circle.front(), *std::min_element(circle.begin(), circle.end()));
      for (std::size_t i = 0; i < circle.size(); ++i) {
        EXPECT_THAT(waits.at(circle[i]), ::testing::Contains(circle[(i + 1) % circle.size()]));
      }
      EXPECT_EQ(std::set(circle.begin(), circle.end()).size(), circle.size());
    }
  }
  EXPECT_GT(circles, 1000);
}

}  // namespace
}  // namespace tessera::detail
