#include "tessera/comm/mpi/mpi_pieces.h"

#include <gtest/gtest.h>

namespace tessera::detail {
namespace {

TEST(MpiPiecesTest, PiecesTileTheElements) {
  EXPECT_EQ(cut_into_pieces(5, 2), (std::vector<Piece>{{0, 2}, {2, 2}, {4, 1}}));
  EXPECT_EQ(cut_into_pieces(4, 2), (std::vector<Piece>{{0, 2}, {2, 2}}));
  EXPECT_TRUE(cut_into_pieces(0, 2).empty());
  EXPECT_EQ(cut_into_pieces(1, 1), (std::vector<Piece>{{0, 1}}));
}

TEST(MpiPiecesTest, NoPieceHasMoreElementsThanAnInt) {
  constexpr std::int64_t kMany = std::int64_t{1} << 31;
  EXPECT_EQ(cut_into_pieces(kMostInt).size(), 1U);
  for (const std::int64_t count : {kMany, kMany + 1, 3 * kMany - 5, std::int64_t{1} << 40}) {
    std::int64_t next = 0;
    for (const auto& piece : cut_into_pieces(count)) {
      EXPECT_EQ(piece.begin, next);
      EXPECT_GT(piece.count, 0);
      next += piece.count;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(MpiPiecesTest, LayoutsHaveTheSumsOfTheSizesBefore) {
  const auto layout = int_layout(std::vector<std::int64_t>{3, 0, 5});
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->counts, (std::vector<int>{3, 0, 5}));
  EXPECT_EQ(layout->displacements, (std::vector<int>{0, 3, 3}));
}

TEST(MpiPiecesTest, LayoutsThatAnIntCannotDescribeAreRefused) {
  constexpr std::int64_t kHalf = std::int64_t{1} << 30;
  EXPECT_TRUE(int_layout(std::vector<std::int64_t>{kHalf, kHalf - 1, kMostInt}));
  EXPECT_FALSE(int_layout(std::vector<std::int64_t>{kMostInt + 1}));
  EXPECT_FALSE(int_layout(std::vector<std::int64_t>{kHalf, kHalf, 1}));
  EXPECT_TRUE(int_layout(std::vector<std::int64_t>{kHalf, kHalf}));
}

}  // namespace
}  // namespace tessera::detail
