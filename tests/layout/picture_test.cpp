#include "tessera/layout/picture.h"

#include <string>

#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"

namespace tessera {
namespace {

using test::throws_invalid_argument;

/// Draws a layout given as text. The golden pictures below begin with a newline for readability.
std::string drawn(const char* mesh, const char* placements, const Shape& shape,
                  const PictureOptions& options = {}) {
  return "\n" + draw(Layout(MeshShape::parse(mesh), parse_placements(placements), shape), options);
}

TEST(PictureTest, RowsAreDimZeroAndColumnsDimOne) {
  EXPECT_EQ(drawn("dp=2,tp=4", "S(0),S(1)", {8192, 8192}), R"(
[8192,8192][S(0),S(1)] on [dp=2, tp=4]
     0      2048    4096    6144    8192
   0 ┌───────┬───────┬───────┬───────┐
     │   0   │   1   │   2   │   3   │
4096 ├───────┼───────┼───────┼───────┤
     │   4   │   5   │   6   │   7   │
8192 └───────┴───────┴───────┴───────┘
)");
}

TEST(PictureTest, AsciiHasNoOtherCharacters) {
  EXPECT_EQ(drawn("dp=2,tp=2", "S(0),S(1)", {6, 8}, {.ascii = true}), R"(
[6,8][S(0),S(1)] on [dp=2, tp=2]
  0       4       8
0 +-------+-------+
  |   0   |   1   |
3 +-------+-------+
  |   2   |   3   |
6 +-------+-------+
)");
}

TEST(PictureTest, UnevenShardsShowTrueIndicesAndEmptyOnesAreListed) {
  EXPECT_EQ(drawn("4", "S(0)", {5}), R"(
[5][S(0)] on [4]
0       2       4     5
┌───────┬───────┬─────┐
│   0   │   1   │  2  │
└───────┴───────┴─────┘
rank 3 holds nothing
)");
  EXPECT_EQ(drawn("3,4", "S(1),S(1)", {3, 8}), R"(
[3,8][S(1),S(1)] on [3, 4]
  0       1       2       3       4       5       6       7       8
0 ┌───────┬───────┬───────┬───────┬───────┬───────┬───────┬───────┐
  │   0   │   1   │   2   │   4   │   5   │   6   │   8   │   9   │
3 └───────┴───────┴───────┴───────┴───────┴───────┴───────┴───────┘
ranks 3,7,10,11 hold nothing
)");
}

TEST(PictureTest, ManyEmptyRanksAreCounted) {
  EXPECT_EQ(drawn("20,2", "S(0),R", {1}), R"(
[1][S(0),R] on [20, 2]
0       1
┌───────┐
│  0,1  │
└───────┘
ranks 2-39 hold nothing (38 of them)
)");
}

TEST(PictureTest, StridedShardsRepeatTheirRank) {
  EXPECT_EQ(drawn("2", "SS(0,2)", {8}), R"(
[8][SS(0,2)] on [2]
0       2       4       6       8
┌───────┬───────┬───────┬───────┐
│   0   │   1   │   0   │   1   │
└───────┴───────┴───────┴───────┘
)");
}

TEST(PictureTest, ReplicatedCellsListAllOwners) {
  EXPECT_EQ(drawn("dp=2,tp=2", "R,S(0)", {8, 8}), R"(
[8,8][R,S(0)] on [dp=2, tp=2]
  0         8
0 ┌─────────┐
  │   0,2   │
4 ├─────────┤
  │   1,3   │
8 └─────────┘
)");
  EXPECT_EQ(drawn("8,2", "R,S(1)", {8, 8}), R"(
[8,8][R,S(1)] on [8, 2]
  0           4           8
0 ┌───────────┬───────────┐
  │ 0,2,…,14  │ 1,3,…,15  │
8 └───────────┴───────────┘
)");
}

TEST(PictureTest, RanksAreGlobalOnes) {
  const Layout layout(MeshShape({3}, {"x"}, {7, 4, 5}), {Shard(0)}, {6});
  EXPECT_EQ("\n" + draw(layout), R"(
[6][S(0)] on [x=3]@{7,4,5}
0       2       4       6
┌───────┬───────┬───────┐
│   7   │   4   │   5   │
└───────┴───────┴───────┘
)");
}

TEST(PictureTest, PartialIsMarkedAndExplained) {
  EXPECT_EQ(drawn("4", "P", {8, 8}), R"(
[8,8][P(sum)] on [4]
  0       8
0 ┌───────┐
  │ Σ 0-3 │
8 └───────┘
Σ 0-3: the sum of what ranks 0-3 hold
)");
  EXPECT_EQ(drawn("dp=2,tp=2", "P(max),S(0)", {8, 8}), R"(
[8,8][P(max),S(0)] on [dp=2, tp=2]
  0         8
0 ┌─────────┐
  │ max 0,2 │
4 ├─────────┤
  │ max 1,3 │
8 └─────────┘
max 0,2: the maximum of what ranks 0,2 hold
)");
}

TEST(PictureTest, CopiesOfPartialAreGroups) {
  EXPECT_EQ(drawn("dp=2,tp=2", "P,R", {8, 8}), R"(
[8,8][P(sum),R] on [dp=2, tp=2]
  0               8
0 ┌───────────────┐
  │ Σ(0,2) Σ(1,3) │
8 └───────────────┘
Σ(0,2) Σ(1,3): the sum of what the ranks of a group hold, the same in every group
)");
}

TEST(PictureTest, MixedReductionsNameTheirMeshDims) {
  EXPECT_EQ(drawn("dp=2,tp=2", "P(sum),P(avg)", {6}), R"(
[6][P(sum),P(avg)] on [dp=2, tp=2]
0       6
┌───────┐
│ Σ 0-3 │
└───────┘
Σ 0-3: the sum over mesh dim dp and average over mesh dim tp of what ranks 0-3 hold
)");
}

TEST(PictureTest, ScalarsAreOneCell) {
  EXPECT_EQ(drawn("4", "R", {}), R"(
[][R] on [4]
┌─────┐
│ 0-3 │
└─────┘
)");
}

TEST(PictureTest, EmptyTensorsHaveNoCells) {
  EXPECT_EQ(drawn("4", "S(0)", {0, 8}), R"(
[0,8][S(0)] on [4]
no elements: no rank holds anything
)");
}

TEST(PictureTest, OfThreeDimsTheShardedOnesAreDrawn) {
  EXPECT_EQ(drawn("2,2", "S(0),S(2)", {4, 5, 6}), R"(
[4,5,6][S(0),S(2)] on [2, 2]
rows: dim 0, columns: dim 2; whole on every rank: dim 1
  0       3       6
0 ┌───────┬───────┐
  │   0   │   1   │
2 ├───────┼───────┤
  │   2   │   3   │
4 └───────┴───────┘
)");
}

TEST(PictureTest, MoreThanTwoShardedDimsAreDrawnInSlabs) {
  EXPECT_EQ(drawn("2,2,2", "S(0),S(1),S(2)", {4, 5, 6}), R"(
[4,5,6][S(0),S(1),S(2)] on [2, 2, 2]
rows: dim 1, columns: dim 2
dim 0 in [0, 2):
  0       3       6
0 ┌───────┬───────┐
  │   0   │   1   │
3 ├───────┼───────┤
  │   2   │   3   │
5 └───────┴───────┘
dim 0 in [2, 4):
  0       3       6
0 ┌───────┬───────┐
  │   4   │   5   │
3 ├───────┼───────┤
  │   6   │   7   │
5 └───────┴───────┘
)");
}

TEST(PictureTest, ManyCellsAreElidedBetweenTheFirstAndTheLast) {
  EXPECT_EQ(drawn("128,128", "S(0),S(1)", {8192, 8192}, {.max_cells = 5}), R"(
[8192,8192][S(0),S(1)] on [128, 128]
     0       64     128 8064    8128    8192
   0 ┌───────┬───────┬───┬───────┬───────┐
     │   0   │   1   │ … │  126  │  127  │
  64 ├───────┼───────┼───┼───────┼───────┤
     │  128  │  129  │ … │  254  │  255  │
 128 ├───────┼───────┼───┼───────┼───────┤
     │   …   │   …   │ … │   …   │   …   │
8064 ├───────┼───────┼───┼───────┼───────┤
     │ 16128 │ 16129 │ … │ 16254 │ 16255 │
8128 ├───────┼───────┼───┼───────┼───────┤
     │ 16256 │ 16257 │ … │ 16382 │ 16383 │
8192 └───────┴───────┴───┴───────┴───────┘
)");
}

TEST(PictureTest, ColumnsAreElidedToFitTheWidth) {
  EXPECT_EQ(drawn("64", "S(0)", {6400}, {.max_width = 50}), R"(
[6400][S(0)] on [64]
0      100     200     300 6200    6300    6400
┌───────┬───────┬───────┬───┬───────┬───────┐
│   0   │   1   │   2   │ … │  62   │  63   │
└───────┴───────┴───────┴───┴───────┴───────┘
)");
}

TEST(PictureTest, ManySlabsAreElided) {
  EXPECT_EQ(drawn("16,2,2", "S(0),S(1),S(2)", {16, 2, 2}, {.caption = false, .max_cells = 3}), R"(
rows: dim 1, columns: dim 2
dim 0 in [0, 1):
  0       1       2
0 ┌───────┬───────┐
  │   0   │   1   │
1 ├───────┼───────┤
  │   2   │   3   │
2 └───────┴───────┘
…
dim 0 in [15, 16):
  0       1       2
0 ┌───────┬───────┐
  │  60   │  61   │
1 ├───────┼───────┤
  │  62   │  63   │
2 └───────┴───────┘
)");
}

TEST(PictureTest, SlabsOfSeveralDimsAreBounded) {
  EXPECT_EQ(drawn("4,2,2,2", "S(0),S(1),S(2),S(3)", {4, 2, 2, 2}, {.ascii = true, .max_cells = 3}),
            R"(
[4,2,2,2][S(0),S(1),S(2),S(3)] on [4, 2, 2, 2]
rows: dim 2, columns: dim 3
dim 0 in [0, 1), dim 1 in [0, 1):
  0       1       2
0 +-------+-------+
  |   0   |   1   |
1 +-------+-------+
  |   2   |   3   |
2 +-------+-------+
dim 0 in [0, 1), dim 1 in [1, 2):
  0       1       2
0 +-------+-------+
  |   4   |   5   |
1 +-------+-------+
  |   6   |   7   |
2 +-------+-------+
...
dim 0 in [3, 4), dim 1 in [0, 1):
  0       1       2
0 +-------+-------+
  |  24   |  25   |
1 +-------+-------+
  |  26   |  27   |
2 +-------+-------+
... and more slabs
)");
}

TEST(PictureTest, ColorsCarryTheirOwnForeground) {
  const PictureOptions options{.ascii = true, .color = true, .caption = false};
  EXPECT_EQ(drawn("2", "S(0)", {4}, options),
            "\n"
            "0       2       4\n"
            "+-------+-------+\n"
            "|\x1b[38;5;16;48;5;117m   0   \x1b[0m|\x1b[38;5;16;48;5;222m   1   \x1b[0m|\n"
            "+-------+-------+\n");
  EXPECT_NE(drawn("2", "R", {4}, options).find("\x1b[38;5;16;48;5;252m  0,1  \x1b[0m"),
            std::string::npos);
}

TEST(PictureTest, HugeLayoutsAreDrawnAtTheCostOfTheirCells) {
  // 2e12 segments: only those that are shown may be looked at.
  const auto text = drawn("2", "SS(0,1000000000000)", {std::int64_t{1} << 50});
  EXPECT_NE(text.find("1125899906842624"), std::string::npos) << text;
}

TEST(PictureTest, OptionsOutOfRangeAreRefused) {
  const Layout layout(MeshShape({2}), {Shard(0)}, {4});
  EXPECT_THAT([&] { return draw(layout, {.max_cells = 2}); },
              throws_invalid_argument("draw: max_cells 2 given; it must be at least 3: a first "
                                      "cell, the dots and a last one"));
  EXPECT_THAT([&] { return draw_mesh(layout.mesh(), {.max_width = 0}); },
              throws_invalid_argument("draw_mesh: max_width 0 given; it must be at least 1"));
}

TEST(MeshPictureTest, LastDimsAreRowsAndColumns) {
  EXPECT_EQ("\n" + draw_mesh(MeshShape::parse("dp=2,tp=4")), R"(
[dp=2, tp=4]
tp   0  1  2  3
dp ┌────────────┐
 0 │ 0  1  2  3 │
 1 │ 4  5  6  7 │
   └────────────┘
)");
  EXPECT_EQ("\n" + draw_mesh(MeshShape({3}, {}, {12, 7, 5}), {.ascii = true}), R"(
[3]@{12,7,5}
dim 0    0   1   2
      +------------+
      | 12   7   5 |
      +------------+
)");
}

TEST(MeshPictureTest, MoreDimsAreDrawnInSlabs) {
  EXPECT_EQ("\n" + draw_mesh(MeshShape::parse("pp=2,dp=2,tp=2")), R"(
[pp=2, dp=2, tp=2]
pp = 0:
tp   0  1
dp ┌──────┐
 0 │ 0  1 │
 1 │ 2  3 │
   └──────┘
pp = 1:
tp   0  1
dp ┌──────┐
 0 │ 4  5 │
 1 │ 6  7 │
   └──────┘
)");
}

TEST(MeshPictureTest, LargeMeshesAreElided) {
  EXPECT_EQ("\n" + draw_mesh(MeshShape::parse("64,128"), {.max_cells = 5}), R"(
[64, 128]
dim 1      0     1     …   126   127
dim 0 ┌──────────────────────────────┐
    0 │    0     1     …   126   127 │
    1 │  128   129     …   254   255 │
      │    …     …     …     …     … │
   62 │ 7936  7937     …  8062  8063 │
   63 │ 8064  8065     …  8190  8191 │
      └──────────────────────────────┘
)");
}

TEST(MeshPictureTest, OneRankWithoutDimsIsOneCell) {
  EXPECT_EQ("\n" + draw_mesh(MeshShape({})), R"(
[]
┌───┐
│ 0 │
└───┘
)");
}

TEST(BesideTest, PicturesShareLines) {
  const PictureOptions options{.color = true, .caption = false};
  const Layout rows(MeshShape({2}), {Shard(0)}, {4, 4});
  const Layout whole(MeshShape({2}), {Replicate()}, {4, 4});
  EXPECT_EQ("\n" + beside(draw(rows, {.caption = false}), " -> ", draw(whole, {.caption = false})),
            R"(
  0         4      0       4
0 ┌─────────┐    0 ┌───────┐
  │    0    │ ->   │  0,1  │
2 ├─────────┤    4 └───────┘
  │    1    │
4 └─────────┘
)");
  // Colours take no room.
  const std::string colored = beside(draw(rows, options), " -> ", draw(whole, options));
  EXPECT_NE(colored.find("0 ┌─────────┐    0 ┌───────┐\n"), std::string::npos) << colored;
  EXPECT_NE(colored.find("│ ->   │"), std::string::npos) << colored;
}

}  // namespace
}  // namespace tessera
