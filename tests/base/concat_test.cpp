#include "tessera/base/concat.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(ConcatTest, StreamsThePartsInOrder) {
  EXPECT_EQ(concat("dim ", 3), "dim 3");
  EXPECT_EQ(concat('[', 1.5, std::string(", "), -2, ']'), "[1.5, -2]");
}

TEST(JoinedTest, PutsTheSeparatorBetweenItemsOnly) {
  EXPECT_EQ(joined(std::vector<int>{1, 2, 3}), "1, 2, 3");
  EXPECT_EQ(joined(std::vector<std::string>{"a", "b"}, " x "), "a x b");
  EXPECT_EQ(joined(std::array<int, 1>{7}, "+"), "7");
}

TEST(JoinedTest, AnEmptyRangeIsTheEmptyText) { EXPECT_EQ(joined(std::vector<int>{}), ""); }

}  // namespace
}  // namespace tessera
