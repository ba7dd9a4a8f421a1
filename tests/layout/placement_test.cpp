#include "tessera/layout/placement.h"

#include <array>
#include <functional>
#include <string>
#include <unordered_set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "support/random_layout.h"
#include "tessera/base/concat.h"

namespace tessera {
namespace {

using test::throws_invalid_argument;

constexpr std::array kOps = {ReduceOp::sum,     ReduceOp::avg,  ReduceOp::min, ReduceOp::max,
                             ReduceOp::product, ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};

const std::string kOpList = "sum, avg, min, max, product, band, bor, bxor";
const std::string kForms =
    "allowed are R, S(dim), SS(dim,split_factor) and P(op) with op one of " + kOpList;

std::string refused_placement(const std::string& text) {
  return "parse_placement: \"" + text + "\" given; " + kForms;
}
std::string refused_list(const std::string& text) {
  return "parse_placements: \"" + text +
         "\" given; pass a comma-separated list such as [S(0),R]; " + kForms;
}

TEST(ReduceOpTest, EveryOpIsReadBackFromItsName) {
  for (const auto op : kOps) {
    EXPECT_EQ(parse_reduce_op(to_string(op)), op);
    EXPECT_EQ(concat(op), to_string(op));
  }
  EXPECT_STREQ(to_string(ReduceOp::sum), "sum");
  EXPECT_STREQ(to_string(ReduceOp::bxor), "bxor");
}

TEST(ReduceOpTest, UnknownNamesAreRefusedWithTheListOfNames) {
  EXPECT_THAT([] { return parse_reduce_op("mean"); },
              throws_invalid_argument("parse_reduce_op: \"mean\" given; allowed are " + kOpList));
  EXPECT_THAT([] { return parse_reduce_op(""); },
              throws_invalid_argument("parse_reduce_op: \"\" given; allowed are " + kOpList));
}

TEST(PlacementTest, TheDefaultsReplicateShardDimZeroAndSum) {
  EXPECT_EQ(Placement(), Placement(Replicate()));
  EXPECT_EQ(Shard(), Shard(0));
  EXPECT_EQ(StridedShard(), StridedShard(0, 1));
  EXPECT_EQ(Partial(), Partial(ReduceOp::sum));
}

TEST(PlacementTest, EveryPlacementIsExactlyOneKind) {
  const Placements all{Replicate(), Shard(1), StridedShard(1, 2), Partial(ReduceOp::max)};
  const std::array<bool, 4> sharded{false, true, true, false};
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(is_replicate(all[i]), i == 0) << all[i];
    EXPECT_EQ(is_sharded(all[i]), sharded[i]) << all[i];
    EXPECT_EQ(is_partial(all[i]), i == 3) << all[i];
  }
}

TEST(PlacementTest, PlacementsAreEqualWhenKindAndFieldsAre) {
  EXPECT_EQ(Placement(Shard(1)), Placement(Shard(1)));
  EXPECT_NE(Placement(Shard(1)), Placement(Shard(-1)));
  EXPECT_NE(Placement(Shard(1)), Placement(StridedShard(1, 1)));
  EXPECT_NE(Placement(StridedShard(1, 2)), Placement(StridedShard(1, 3)));
  EXPECT_NE(Placement(Partial(ReduceOp::sum)), Placement(Partial(ReduceOp::avg)));
}

TEST(PlacementTest, DifferentPlacementsHaveDifferentHashes) {
  std::unordered_set<Placement> placements{Replicate()};
  std::unordered_set<std::size_t> hashes{std::hash<Placement>{}(Replicate())};
  const auto add = [&](const Placement& placement) {
    placements.insert(placement);
    hashes.insert(std::hash<Placement>{}(placement));
  };
  for (const auto op : kOps) add(Partial(op));
  for (std::int64_t dim = -4; dim < 4; ++dim) {
    add(Shard(dim));
    for (std::int64_t pieces = 1; pieces <= 4; ++pieces) add(StridedShard(dim, pieces));
  }
  EXPECT_EQ(placements.size(), 1U + 8U + 8U + 32U);
  EXPECT_EQ(hashes.size(), placements.size());
}

TEST(PlacementTest, PrintsInTheShortNotation) {
  EXPECT_EQ(to_string(Placement(Replicate())), "R");
  EXPECT_EQ(to_string(Placement(Shard(0))), "S(0)");
  EXPECT_EQ(to_string(Placement(Shard(-1))), "S(-1)");
  EXPECT_EQ(to_string(Placement(StridedShard(0, 2))), "SS(0,2)");
  EXPECT_EQ(to_string(Placement(Partial())), "P(sum)");
  EXPECT_EQ(concat(Placement(Partial(ReduceOp::max))), "P(max)");
}

TEST(PlacementTest, ListsPrintInBrackets) {
  EXPECT_EQ(to_string(Placements{Shard(0), Replicate()}), "[S(0),R]");
  EXPECT_EQ(to_string(Placements{StridedShard(1, 3), Partial()}), "[SS(1,3),P(sum)]");
  EXPECT_EQ(to_string(Placements{}), "[]");
}

TEST(ParsePlacementTest, ReadsShortFormsAndBlanks) {
  EXPECT_EQ(parse_placement("S0"), Placement(Shard(0)));
  EXPECT_EQ(parse_placement("S-2"), Placement(Shard(-2)));
  EXPECT_EQ(parse_placement("P"), Placement(Partial(ReduceOp::sum)));
  EXPECT_EQ(parse_placement("  R "), Placement(Replicate()));
  EXPECT_EQ(parse_placement(" SS ( 1 , 4 ) "), Placement(StridedShard(1, 4)));
  EXPECT_EQ(parse_placement("P( bor )"), Placement(Partial(ReduceOp::bor)));
}

TEST(ParsePlacementTest, OtherTextIsRefusedWithTheFormsThatAreAllowed) {
  for (const std::string text : {"",       "X",
                                 "r",      "S",
                                 "S(",     "S(0",
                                 "S()",    "S(a)",
                                 "S(0,2)", "SS(0)",
                                 "SS(0,)", "SS(0,2",
                                 "SS0",    "P(",
                                 "P()",    "P(mean)",
                                 "P(sum",  "RR",
                                 "R R",    "S(0)x",
                                 "[R]",    "S(99999999999999999999)"}) {
    EXPECT_THAT([&] { return parse_placement(text); },
                throws_invalid_argument(refused_placement(text)));
  }
}

TEST(ParsePlacementsTest, ReadsListsWithAndWithoutBrackets) {
  EXPECT_EQ(parse_placements("[S(0), R]"), (Placements{Shard(0), Replicate()}));
  EXPECT_EQ(parse_placements("S0,R"), (Placements{Shard(0), Replicate()}));
  EXPECT_EQ(parse_placements("SS(0,2),P(max)"),
            (Placements{StridedShard(0, 2), Partial(ReduceOp::max)}));
  EXPECT_EQ(parse_placements(" [ R ] "), (Placements{Replicate()}));
}

TEST(ParsePlacementsTest, AnEmptyListIsNoPlacements) {
  EXPECT_EQ(parse_placements(""), Placements{});
  EXPECT_EQ(parse_placements("[]"), Placements{});
  EXPECT_EQ(parse_placements(" [ ] "), Placements{});
}

TEST(ParsePlacementsTest, OtherTextIsRefusedWithAnExampleAndTheForms) {
  for (const std::string text :
       {"[", "[R", "R,", "[R,]", ",R", "R,,R", "[R;S(0)]", "[S(0),Q]", "[[R]]", "P(mean),R"}) {
    EXPECT_THAT([&] { return parse_placements(text); },
                throws_invalid_argument(refused_list(text)));
  }
}

TEST(ParsePlacementsTest, TextBehindTheListIsRefused) {
  for (const std::string text : {"[R] R", "R R", "R]", "[]]", "S(0) x"}) {
    EXPECT_THAT([&] { return parse_placements(text); },
                throws_invalid_argument("parse_placements: \"" + text +
                                        "\" given; the list ends before the text does: separate "
                                        "placements with commas"));
  }
}

TEST(ParsePlacementsTest, WhatIsPrintedIsReadBack) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    test::Random random(seed);
    const auto placements = test::random_placements(
        random, random.between(0, 5), 4,
        {.max_split_factor = 1000, .partial_ops = {kOps.begin(), kOps.end()}});
    EXPECT_EQ(parse_placements(to_string(placements)), placements) << to_string(placements);
    for (const auto& placement : placements) {
      EXPECT_EQ(parse_placement(to_string(placement)), placement) << placement;
    }
  }
}

}  // namespace
}  // namespace tessera
