#include "tessera/layout/chunk.h"

#include <cstdint>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "layout/layout_oracle.h"
#include "tessera/base/concat.h"

namespace tessera {
namespace {

using test::throws_invalid_argument;

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

TEST(ChunkExtentTest, TrailingChunksAreShortThenEmptyAndStartAtTheEnd) {
  EXPECT_EQ(chunk_extent(5, 4, 0), (Extent{0, 2}));
  EXPECT_EQ(chunk_extent(5, 4, 1), (Extent{2, 2}));
  EXPECT_EQ(chunk_extent(5, 4, 2), (Extent{4, 1}));
  EXPECT_EQ(chunk_extent(5, 4, 3), (Extent{5, 0}));
}

TEST(ChunkExtentTest, EveryEmptyChunkStartsAtTheEnd) {
  for (const std::int64_t index : {3, 4, 5, 6}) {
    EXPECT_EQ(chunk_extent(3, 7, index), (Extent{3, 0})) << index;
  }
  EXPECT_EQ(chunk_extent(0, 3, 0), (Extent{0, 0}));
  EXPECT_EQ(chunk_extent(0, 3, 2), (Extent{0, 0}));
}

TEST(ChunkExtentTest, ChunksTileTheDimension) {
  for (const std::int64_t length : {0, 1, 5, 64}) {
    for (const std::int64_t count : {1, 2, 3, 7}) {
      std::int64_t next = 0;
      for (std::int64_t index = 0; index < count; ++index) {
        const Extent extent = chunk_extent(length, count, index);
        EXPECT_EQ(extent.begin, next) << "length=" << length << " count=" << count;
        next = extent.end();
      }
      EXPECT_EQ(next, length);
    }
  }
}

TEST(ChunkExtentTest, ChunksAreWhatDealingOneByOneGives) {
  for (std::int64_t length = 0; length <= 30; ++length) {
    for (std::int64_t count = 1; count <= 9; ++count) {
      const auto groups = test::deal(test::counted_to(length), count);
      for (std::int64_t index = 0; index < count; ++index) {
        const IndexSet chunk(chunk_extent(length, count, index));
        EXPECT_EQ(test::listed(chunk), groups[static_cast<std::size_t>(index)])
            << "chunk " << index << " of " << count << " of " << length;
      }
    }
  }
}

TEST(ChunkExtentTest, TheLargestNumbersDoNotOverflow) {
  EXPECT_EQ(chunk_extent(kLargest, 1, 0), (Extent{0, kLargest}));
  EXPECT_EQ(chunk_extent(kLargest, kLargest, kLargest - 1), (Extent{kLargest - 1, 1}));
  EXPECT_EQ(chunk_extent(kLargest, kLargest - 1, kLargest - 2), (Extent{kLargest, 0}));
  EXPECT_EQ(chunk_extent(1, kLargest, kLargest - 1), (Extent{1, 0}));
}

TEST(ChunkExtentTest, WrongArgumentsAreRefused) {
  EXPECT_THAT([] { return chunk_extent(-1, 2, 0); },
              throws_invalid_argument("chunk_extent: length -1 given; it must be >= 0"));
  EXPECT_THAT([] { return chunk_extent(8, 0, 0); },
              throws_invalid_argument("chunk_extent: 0 chunks given; there must be at least 1"));
  EXPECT_THAT(
      [] { return chunk_extent(8, 2, 2); },
      throws_invalid_argument("chunk_extent: index 2 given; with 2 chunks it must be in [0, 2)"));
  EXPECT_THAT(
      [] { return chunk_extent(8, 2, -1); },
      throws_invalid_argument("chunk_extent: index -1 given; with 2 chunks it must be in [0, 2)"));
}

TEST(ExtentTest, PrintsAsAHalfOpenInterval) {
  EXPECT_EQ(concat(Extent{2, 3}), "[2, 5)");
  EXPECT_EQ(concat(Extent{5, 0}), "[5, 5)");
}

TEST(ExtentTest, ExtentsAreEqualWhenBeginAndSizeAre) {
  EXPECT_EQ((Extent{1, 2}), (Extent{1, 2}));
  EXPECT_NE((Extent{1, 2}), (Extent{1, 3}));
  EXPECT_NE((Extent{1, 0}), (Extent{2, 0}));
}

}  // namespace
}  // namespace tessera
