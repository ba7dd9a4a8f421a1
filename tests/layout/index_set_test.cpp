#include "tessera/layout/index_set.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "layout/layout_oracle.h"
#include "support/random_layout.h"
#include "tessera/base/concat.h"

namespace tessera {
namespace {

using test::Indices;
using test::throws_invalid_argument;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

IndexSet set_of_runs(std::initializer_list<Extent> runs) {
  IndexSet set;
  for (const auto& run : runs) set.append(run);
  return set;
}

/// Up to 12 indices below 16.
Indices random_indices(test::Random& random) {
  Indices all = test::counted_to(16);
  random.shuffle(all);
  all.resize(static_cast<std::size_t>(random.between(0, 12)));
  std::sort(all.begin(), all.end());
  return all;
}

TEST(IndexSetTest, TheDefaultIsEmpty) {
  const IndexSet set;
  EXPECT_TRUE(set.empty());
  EXPECT_EQ(set.size(), 0);
  EXPECT_THAT(set.runs(), IsEmpty());
}

TEST(IndexSetTest, AnEmptyExtentGivesTheEmptySetWhereverItLies) {
  EXPECT_EQ(IndexSet(Extent{5, 0}), IndexSet());
}

TEST(IndexSetTest, OneExtentIsOneRun) {
  const IndexSet set(Extent{2, 3});
  EXPECT_FALSE(set.empty());
  EXPECT_EQ(set.size(), 3);
  EXPECT_THAT(set.runs(), ElementsAre(Extent{2, 3}));
}

TEST(IndexSetTest, RunsThatTouchAreMerged) {
  const IndexSet set = set_of_runs({{0, 2}, {2, 2}, {6, 1}, {7, 1}});
  EXPECT_THAT(set.runs(), ElementsAre(Extent{0, 4}, Extent{6, 2}));
  EXPECT_EQ(set.size(), 6);
}

TEST(IndexSetTest, EmptyRunsAreIgnored) {
  EXPECT_EQ(set_of_runs({{0, 2}, {9, 0}, {4, 2}, {0, 0}}), set_of_runs({{0, 2}, {4, 2}}));
}

TEST(IndexSetTest, SetsOfTheSameIndicesAreEqualHoweverTheyWereMade) {
  EXPECT_EQ(set_of_runs({{0, 1}, {1, 1}, {2, 1}}), IndexSet(Extent{0, 3}));
  EXPECT_NE(IndexSet(Extent{0, 3}), IndexSet(Extent{1, 3}));
}

TEST(IndexSetTest, SliceTakesLocalPositionsAcrossRuns) {
  const IndexSet set = set_of_runs({{0, 2}, {4, 2}, {8, 2}});
  EXPECT_EQ(set.slice({1, 4}), set_of_runs({{1, 1}, {4, 2}, {8, 1}}));
  EXPECT_EQ(set.slice({0, 6}), set);
  EXPECT_EQ(set.slice({2, 2}), IndexSet(Extent{4, 2}));
  EXPECT_EQ(set.slice({6, 0}), IndexSet());
  EXPECT_EQ(IndexSet().slice({0, 0}), IndexSet());
}

TEST(IndexSetTest, SliceIsWhatListingOneByOneGives) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    test::Random random(seed);
    const Indices indices = random_indices(random);
    const IndexSet set = test::set_of(indices);
    const std::int64_t begin = random.between(0, std::ssize(indices));
    const std::int64_t end = random.between(begin, std::ssize(indices));
    EXPECT_EQ(test::listed(set.slice({begin, end - begin})),
              Indices(indices.begin() + begin, indices.begin() + end))
        << set << " from " << begin << " to " << end;
  }
}

TEST(IndexSetTest, IntersectionOfRunsKeepsWhatOverlaps) {
  const IndexSet set = set_of_runs({{0, 4}, {6, 4}});
  EXPECT_EQ(set.intersect(IndexSet(Extent{2, 6})), set_of_runs({{2, 2}, {6, 2}}));
  EXPECT_EQ(set.intersect(set), set);
  EXPECT_EQ(set.intersect(IndexSet(Extent{4, 2})), IndexSet());
  EXPECT_EQ(set.intersect(IndexSet()), IndexSet());
}

TEST(IndexSetTest, IntersectionIsWhatListingOneByOneGives) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    test::Random random(seed);
    const Indices mine = random_indices(random);
    const Indices theirs = random_indices(random);
    Indices common;
    std::set_intersection(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                          std::back_inserter(common));
    EXPECT_EQ(test::listed(test::set_of(mine).intersect(test::set_of(theirs))), common)
        << joined(mine) << " and " << joined(theirs);
  }
}

TEST(IndexSetTest, PrintsItsRuns) {
  EXPECT_EQ(concat(IndexSet()), "{}");
  EXPECT_EQ(concat(IndexSet(Extent{0, 4})), "[0, 4)");
  EXPECT_EQ(concat(set_of_runs({{0, 2}, {4, 2}})), "[0, 2)+[4, 6)");
}

TEST(IndexSetTest, RunsOutOfOrderAreRefused) {
  EXPECT_THAT(
      [] {
        set_of_runs({{0, 4}}).append({3, 2});
      },
      throws_invalid_argument("IndexSet::append: run [3, 5) given behind [0, 4); runs are "
                              "added in ascending order"));
  EXPECT_THAT(
      [] {
        IndexSet().append({3, -2});
      },
      throws_invalid_argument("IndexSet::append: run [3, 1) given behind {}; runs are added "
                              "in ascending order"));
}

TEST(IndexSetTest, ARefusedRunChangesNothing) {
  IndexSet set(Extent{0, 4});
  EXPECT_ANY_THROW(set.append({3, 2}));
  EXPECT_EQ(set, IndexSet(Extent{0, 4}));
}

TEST(IndexSetTest, PositionsOutsideTheSetAreRefused) {
  const IndexSet set(Extent{10, 3});
  EXPECT_THAT(
      [&] {
        return set.slice({1, 3});
      },
      throws_invalid_argument(
          "IndexSet::slice: 3 positions from 1 on given; pass positions in [0, 3)"));
  EXPECT_THAT(
      [&] {
        return set.slice({-1, 2});
      },
      throws_invalid_argument(
          "IndexSet::slice: 2 positions from -1 on given; pass positions in [0, 3)"));
  EXPECT_THAT(
      [&] {
        return set.slice({2, -1});
      },
      throws_invalid_argument(
          "IndexSet::slice: -1 positions from 2 on given; pass positions in [0, 3)"));
}

}  // namespace
}  // namespace tessera
