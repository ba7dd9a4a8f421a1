#include "tessera/layout/split.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "layout/layout_oracle.h"
#include "tessera/base/concat.h"

namespace tessera {
namespace {

using test::Indices;

/// Calls `check(cut, length)` for all small cuts of all small lengths.
template <typename Check>
void for_small_cuts(const Check& check) {
  for (std::int64_t length = 0; length <= 17; ++length) {
    for (std::int64_t count = 1; count <= 6; ++count) {
      for (std::int64_t pieces = 1; pieces <= 6; ++pieces) {
        SCOPED_TRACE(concat(length, " over ", count, " in ", pieces, " piece(s)"));
        check(Split{.mesh_dim = 0, .count = count, .pieces = pieces}, length);
      }
    }
  }
}

TEST(SplitTest, OnePieceIsAPlainShard) {
  const Split cut{.mesh_dim = 0, .count = 2, .pieces = 1};
  const IndexSet all(Extent{0, 5});
  EXPECT_EQ(cut.take(all, 0), IndexSet(Extent{0, 3}));
  EXPECT_EQ(cut.take(all, 1), IndexSet(Extent{3, 2}));
}

TEST(SplitTest, SeveralPiecesAreAStridedShard) {
  const Split cut{.mesh_dim = 0, .count = 2, .pieces = 2};
  const IndexSet all(Extent{0, 8});
  EXPECT_EQ(test::listed(cut.take(all, 0)), (Indices{0, 1, 4, 5}));
  EXPECT_EQ(test::listed(cut.take(all, 1)), (Indices{2, 3, 6, 7}));
}

TEST(SplitTest, TheLastPieceMayBeShortAndThenItsChunksAreToo) {
  // 7 in 3 pieces: {0,1,2} {3,4,5} {6}; two chunks of each.
  const Split cut{.mesh_dim = 0, .count = 2, .pieces = 3};
  const IndexSet all(Extent{0, 7});
  EXPECT_EQ(test::listed(cut.take(all, 0)), (Indices{0, 1, 3, 4, 6}));
  EXPECT_EQ(test::listed(cut.take(all, 1)), (Indices{2, 5}));
}

TEST(SplitTest, MorePiecesThanIndicesGiveAllToTheFirstChunk) {
  const Split cut{.mesh_dim = 0, .count = 2, .pieces = 9};
  const IndexSet all(Extent{0, 4});
  EXPECT_EQ(cut.take(all, 0), all);
  EXPECT_EQ(cut.take(all, 1), IndexSet());
}

TEST(SplitTest, ACutAppliesToTheLocalOrderOfWhatIsLeft) {
  IndexSet left;
  left.append({0, 2});
  left.append({10, 2});
  const Split halves{.mesh_dim = 0, .count = 2, .pieces = 1};
  EXPECT_EQ(halves.take(left, 0), IndexSet(Extent{0, 2}));
  EXPECT_EQ(halves.take(left, 1), IndexSet(Extent{10, 2}));
  const Split strided{.mesh_dim = 0, .count = 2, .pieces = 2};
  EXPECT_EQ(test::listed(strided.take(left, 0)), (Indices{0, 10}));
  EXPECT_EQ(test::listed(strided.take(left, 1)), (Indices{1, 11}));
}

TEST(SplitTest, NothingIsLeftOfNothing) {
  const Split cut{.mesh_dim = 0, .count = 3, .pieces = 2};
  EXPECT_EQ(cut.take(IndexSet(), 1), IndexSet());
  EXPECT_EQ(cut.local_size(0, 1), 0);
}

TEST(SplitTest, EveryChunkTakesWhatDealingOneByOneGives) {
  for_small_cuts([](const Split& cut, std::int64_t length) {
    for (std::int64_t chunk = 0; chunk < cut.count; ++chunk) {
      EXPECT_EQ(test::listed(cut.take(IndexSet(Extent{0, length}), chunk)),
                test::keep(test::counted_to(length), cut.pieces, cut.count, chunk));
    }
  });
}

TEST(SplitTest, LocalSizeIsTheSizeOfWhatIsTaken) {
  for_small_cuts([](const Split& cut, std::int64_t length) {
    for (std::int64_t chunk = 0; chunk < cut.count; ++chunk) {
      EXPECT_EQ(cut.local_size(length, chunk), cut.take(IndexSet(Extent{0, length}), chunk).size());
    }
  });
}

TEST(SplitTest, TheFirstChunkIsTheLargest) {
  for_small_cuts([](const Split& cut, std::int64_t length) {
    for (std::int64_t chunk = 1; chunk < cut.count; ++chunk) {
      EXPECT_LE(cut.local_size(length, chunk), cut.local_size(length, 0));
    }
  });
}

TEST(SplitTest, LocateFindsTheChunkAndThePositionInIt) {
  for_small_cuts([](const Split& cut, std::int64_t length) {
    for (std::int64_t index = 0; index < length; ++index) {
      const auto place = cut.locate(length, index);
      const auto kept = test::keep(test::counted_to(length), cut.pieces, cut.count, place.chunk);
      ASSERT_LT(place.local, std::ssize(kept));
      EXPECT_EQ(kept[static_cast<std::size_t>(place.local)], index);
    }
  });
}

TEST(SplitTest, IndicesOfARunStayInStep) {
  for_small_cuts([](const Split& cut, std::int64_t length) {
    for (std::int64_t index = 0; index < length; ++index) {
      const auto place = cut.locate(length, index);
      ASSERT_GE(place.run, 1);
      ASSERT_LE(index + place.run, length);
      for (std::int64_t ahead = 1; ahead < place.run; ++ahead) {
        const auto next = cut.locate(length, index + ahead);
        EXPECT_EQ(next.chunk, place.chunk);
        EXPECT_EQ(next.local, place.local + ahead);
        EXPECT_EQ(next.run, place.run - ahead);
      }
    }
  });
}

TEST(SplitTest, LargeDimensionsDoNotOverflow) {
  constexpr std::int64_t kLength = (std::int64_t{1} << 62) - 1;
  const Split cut{.mesh_dim = 0, .count = 4, .pieces = 2};
  std::int64_t sum = 0;
  for (std::int64_t chunk = 0; chunk < cut.count; ++chunk) sum += cut.local_size(kLength, chunk);
  EXPECT_EQ(sum, kLength);
  const auto last = cut.locate(kLength, kLength - 1);
  EXPECT_EQ(last.chunk, 3);
  EXPECT_EQ(last.local, cut.local_size(kLength, 3) - 1);
  EXPECT_EQ(last.run, 1);
}

}  // namespace
}  // namespace tessera
