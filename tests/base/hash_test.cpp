#include "tessera/base/hash.h"

#include <string>
#include <unordered_set>
#include <vector>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(HashTest, CombiningIsAConstantExpression) {
  static_assert(hash_combine(1, 2) == hash_combine(1, 2));
  static_assert(hash_combine(1, 2) != hash_combine(2, 1));
}

TEST(HashTest, SmallIntegersDoNotCollide) {
  std::unordered_set<std::size_t> seen;
  for (std::size_t seed = 0; seed < 64; ++seed) {
    for (std::size_t value = 0; value < 64; ++value) seen.insert(hash_combine(seed, value));
  }
  EXPECT_EQ(seen.size(), 64U * 64U);
}

TEST(HashTest, NeighboursDifferInTheLowAndInTheHighHalf) {
  std::unordered_set<std::size_t> low;
  std::unordered_set<std::size_t> high;
  for (std::size_t value = 0; value < 64; ++value) {
    low.insert(hash_combine(0, value) & 0xffffffffU);
    high.insert(hash_combine(0, value) >> 32);
  }
  EXPECT_EQ(low.size(), 64U);
  EXPECT_EQ(high.size(), 64U);
}

TEST(HashTest, TheOrderAndTheNumberOfItemsMatter) {
  using Items = std::vector<int>;
  EXPECT_EQ(hash_range(Items{1, 2}), hash_range(Items{1, 2}));
  EXPECT_NE(hash_range(Items{1, 2}), hash_range(Items{2, 1}));
  EXPECT_NE(hash_range(Items{0}), hash_range(Items{0, 0}));
  EXPECT_NE(hash_range(Items{}), hash_range(Items{0}));
}

TEST(HashTest, AnythingWithAStandardHashCanBeAnItem) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(hash_range(Names{"dp", "tp"}), hash_range(Names{"dp", "tp"}));
  EXPECT_NE(hash_range(Names{"dp", "tp"}), hash_range(Names{"dptp"}));
}

}  // namespace
}  // namespace tessera
