#include "tessera/plan/op_rule.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "tessera/base/concat.h"

namespace tessera {
namespace {

using test::throws_invalid_argument;

constexpr const char* kMatmul = "mm: (m k), (k n) -> (m n) | k: sum | linear {0}, {1}";

std::vector<std::string> printed(const std::vector<Strategy>& strategies) {
  std::vector<std::string> texts;
  for (const auto& strategy : strategies) texts.push_back(concat(strategy));
  return texts;
}

TEST(OpRuleParseTest, ReadsEveryPart) {
  const OpRule rule = OpRule::parse(
      "aten::addmm: (m n), (m k), (k n), () -> (m n), (1) | k: sum {0}, m: whole, n: whole | "
      "linear {0 1}, {2}");
  EXPECT_EQ(rule.name(), "aten::addmm");
  const std::vector<Factor> factors = {{"m", FactorKind::whole, ReduceOp::sum, {}},
                                       {"n", FactorKind::whole, ReduceOp::sum, {}},
                                       {"k", FactorKind::reduce, ReduceOp::sum, {0}}};
  EXPECT_EQ(rule.factors(), factors);
  EXPECT_EQ(rule.inputs(), (std::vector<OpRule::Dims>{{0, 1}, {0, 2}, {2, 1}, {}}));
  EXPECT_EQ(rule.outputs(), (std::vector<OpRule::Dims>{{0, 1}, {OpRule::kBroadcast}}));
  EXPECT_EQ(rule.linear(), (std::vector<std::vector<std::int64_t>>{{0, 1}, {2}}));
}

TEST(OpRuleParseTest, PrintsWhatItReads) {
  for (const char* text : {
           kMatmul,
           "addmm: (m n), (m k), (k n) -> (m n) | k: sum {0} | linear {0 1}, {0 2}",
           "add: (a b), (1 b) -> (a b) | linear {0 1}",
           "mean: (a b) -> (a 1) | b: mean | linear {0}",
           "softmax: (b s) -> (b s) | s: whole",
           "norm: (b d), (d) -> (b d), (b 1) | d: whole",
           "embed: (v d), (b s) -> (b s d) | v: sum | linear {0}",
           "expand: (b) -> (a b)",
           "item: () -> ()",
           "aten::any.dims: (a_1 B2) -> () | a_1: bor, B2: bor",
           "bound: (a), (a k) -> (a) | k: max {0}",
       }) {
    const OpRule rule = OpRule::parse(text);
    EXPECT_EQ(rule.to_string(), text);
    EXPECT_EQ(concat(rule), text);
    EXPECT_EQ(OpRule::parse(rule.to_string()), rule);
  }
}

TEST(OpRuleParseTest, BlanksAndTheGroupingOfClausesDoNotMatter) {
  const OpRule rule = OpRule::parse("f: (a b c) -> () | a: mean, b: mean, c: sum | linear {0}");
  EXPECT_EQ(OpRule::parse(" f :\n(a b\tc)->()|a b:mean|c:sum|linear{ 0 } "), rule);
  EXPECT_EQ(OpRule::parse("f: (a b c) -> () | linear {0}, c: sum, a b: mean"), rule);
}

TEST(OpRuleParseTest, DifferentRulesAreNotEqual) {
  const OpRule rule = OpRule::parse(kMatmul);
  for (const char* text : {"m2: (m k), (k n) -> (m n) | k: sum | linear {0}, {1}",
                           "mm: (m k), (k n) -> (m n) | k: whole | linear {0}, {1}",
                           "mm: (m k), (k n) -> (m n) | k: mean | linear {0}, {1}",
                           "mm: (m k), (k n) -> (n m) | k: sum | linear {0}, {1}",
                           "mm: (m k), (k n) -> (m n) | k: sum | linear {0}",
                           "mm: (x k), (k n) -> (x n) | k: sum | linear {0}, {1}"}) {
    EXPECT_NE(OpRule::parse(text), rule) << text;
  }
}

/// A text that is not a rule, and what is said about it.
struct BadText {
  const char* text;
  const char* complaint;
};

TEST(OpRuleParseTest, SaysWhatIsWrongWithTheForm) {
  const std::vector<BadText> bad = {
      {"", "expected one name and \":\" in front of the inputs"},
      {"mm (m k) -> (m)", "expected one name and \":\" in front of the inputs"},
      {": (m k) -> (m)", "expected one name and \":\" in front of the inputs"},
      {"two names: (m) -> (m)", "expected one name and \":\" in front of the inputs"},
      {"mm: -> (m)", "expected a tensor such as (m k)"},
      {"mm: (m k) ->", "expected a tensor such as (m k)"},
      {"mm: (m k),", "expected a tensor such as (m k)"},
      {"mm: (m k) (k n) -> (m n)", "expected \"->\" behind the inputs"},
      {"mm: (m k", "expected factors, separated by blanks, or 1, up to \")\""},
      {"mm: (m, k) -> (m k)", "expected factors, separated by blanks, or 1, up to \")\""},
      {"mm: (m 2) -> (m 2)", "the only number among factors is 1, not 2"},
      {"mm: (linear) -> (linear)", "linear cannot be the name of a factor"},
      {"tr: (i i) -> ()",
       "factor i stands twice in one tensor; give each dim its own name, and make them whole"},
      {"mm: (m) -> (m) k: sum", "expected \"|\" and a clause, or nothing, behind the outputs"},
      {"mm: (m) -> (m) |", "expected a clause such as k: sum, s: whole or linear {0}"},
      {"mm: (m) -> (m) | {0}", "expected a clause such as k: sum, s: whole or linear {0}"},
      {"mm: (m) -> (m) | m sum", "expected \":\" behind the factors of a clause"},
      {"mm: (m) -> () | m:",
       "\"\" is not what a factor can be: allowed are whole, mean, sum, min, max, product, band, "
       "bor and bxor"},
      {"mm: (m) -> () | m: some",
       "\"some\" is not what a factor can be: allowed are whole, mean, sum, min, max, product, "
       "band, bor and bxor"},
      {"mm: (m) -> () | m: avg", "avg would weigh uneven shards alike; write mean"},
      {"mm: (m) -> () | k: sum", "factor k of a clause is in no tensor"},
      {"mm: (m) -> () | m: sum | m: whole", "factor m has two clauses"},
      {"mm: (m) -> (m) | linear", "expected a group such as {0 1} behind linear"},
      {"mm: (m) -> (m) | linear {}", "expected at least one input between braces"},
      {"mm: (m) -> (m) | linear {0,1}",
       "expected inputs' numbers, separated by blanks, up to \"}\""},
  };
  for (const BadText& wrong : bad) {
    EXPECT_THAT([&] { return OpRule::parse(wrong.text); },
                throws_invalid_argument(concat("OpRule::parse: \"", wrong.text, "\" given; ",
                                               wrong.complaint, "; write rules as ", kMatmul)));
  }
}

TEST(OpRuleParseTest, SaysWhatIsWrongWithTheMeaning) {
  const std::vector<BadText> bad = {
      {"mm: (m k), (k n) -> (m n)",
       "factor k is missing from output 0; say what becomes of it: k: sum (or another op), mean "
       "or whole"},
      {"two: (a b) -> (a b), (a)",
       "factor b is missing from output 1; say what becomes of it: b: sum (or another op), mean "
       "or whole"},
      {"exp: (a) -> (a) | a: sum",
       "factor a is in every output, so there is nothing to reduce; drop its clause, or make it "
       "whole"},
      {"new: (a) -> (a b), (a) | b: sum",
       "factor b is in no input, so there is nothing to reduce; drop its clause, or make it whole"},
      {"dot: (k), (k) -> () | k: sum {1}",
       "input 1 is an addend of factor k, but carries that factor; only inputs without it can be"},
      {"sum: (k) -> () | k: sum {1}",
       "the braces of factor k name input 1; the rule has inputs 0 to 0"},
      {"sum: (), (k) -> () | k: sum {0 0}", "the braces of factor k name input 0 twice"},
      {"odd: (a b) -> () | a: sum, b: max",
       "factor a reduces by sum and factor b by max, and the result would depend on the order; "
       "use one op, or make one factor whole"},
      {"add: (a), (a) -> (a) | linear {0 2}",
       "the braces of linear name input 2; the rule has inputs 0 to 1"},
      {"add: (a), (a) -> (a) | linear {-1}",
       "the braces of linear name input -1; the rule has inputs 0 to 1"},
      {"add: (a), (a) -> (a) | linear {1 1}", "the braces of linear name input 1 twice"},
      {"mul: (a), (a) -> (a) | linear {0}, {1}, {0}", "linear names {0} twice"},
      {"max: (a) -> () | a: max | linear {0}",
       "factor a reduces by max, which is not linear; drop linear, or reduce by sum or mean"},
  };
  for (const BadText& wrong : bad) {
    EXPECT_THAT([&] { return OpRule::parse(wrong.text); },
                throws_invalid_argument(
                    concat("OpRule::parse: \"", wrong.text, "\" given; ", wrong.complaint)));
  }
}

TEST(OpRuleStrategiesTest, MatmulHasOnePerFactorAndTwoPerLinearGroup) {
  EXPECT_EQ(
      printed(OpRule::parse(kMatmul).strategies()),
      (std::vector<std::string>{"R, R -> R", "S(0), R -> S(0)", "S(1), S(0) -> P(sum)",
                                "R, S(1) -> S(1)", "P(sum), R -> P(sum)", "P(avg), R -> P(avg)",
                                "R, P(sum) -> P(sum)", "R, P(avg) -> P(avg)"}));
}

TEST(OpRuleStrategiesTest, NameTheFactorThatIsSharded) {
  const auto strategies = OpRule::parse(kMatmul).strategies();
  EXPECT_EQ(strategies[0].factor, std::nullopt);
  EXPECT_EQ(strategies[2].factor, std::size_t{1});
  EXPECT_EQ(strategies[4].factor, std::nullopt);
}

TEST(OpRuleStrategiesTest, FollowFromTheKindOfEachFactor) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> expected = {
      {"softmax: (b s) -> (b s) | s: whole", {"R -> R", "S(0) -> S(0)"}},
      {"mean: (a b) -> (a 1) | b: mean", {"R -> R", "S(0) -> S(0)", "S(1) -> P(sum)"}},
      {"max: (a) -> () | a: max", {"R -> R", "S(0) -> P(max)"}},
      {"add: (a), () -> (a) | linear {0 1}",
       {"R, R -> R", "S(0), R -> S(0)", "P(sum), P(sum) -> P(sum)", "P(avg), P(avg) -> P(avg)"}},
      {"addmm: (n), (m k), (k n) -> (m n) | k: sum {0}",
       {"R, R, R -> R", "S(0), R, S(1) -> S(1)", "R, S(0), R -> S(0)",
        "P(sum), S(1), S(0) -> P(sum)"}},
      {"two: (b d), (b d) -> (b d), (d) | b: sum",
       {"R, R -> R, R", "S(0), S(0) -> S(0), P(sum)", "S(1), S(1) -> S(1), S(0)"}},
      {"item: () -> ()", {"R -> R"}},
  };
  for (const auto& [text, strategies] : expected) {
    EXPECT_EQ(printed(OpRule::parse(text).strategies()), strategies) << text;
  }
}

TEST(OpRuleStrategiesTest, StridedShardsGoAlongWithTheirFactor) {
  const OpRule rule = OpRule::parse(kMatmul);
  EXPECT_EQ(concat(rule.shard_factor(0, 2)), "SS(0,2), R -> SS(0,2)");
  EXPECT_EQ(concat(rule.shard_factor(1, 3)), "SS(1,3), SS(0,3) -> P(sum)");
  EXPECT_EQ(rule.shard_factor(2, 1), rule.shard_factor(2));
}

TEST(OpRuleStrategiesTest, RefuseFactorsThatCannotBeSharded) {
  const OpRule rule = OpRule::parse("softmax: (b s) -> (b s) | s: whole");
  EXPECT_THAT([&] { return rule.shard_factor(2); },
              throws_invalid_argument("OpRule::shard_factor: factor 2 given; the rule softmax: "
                                      "(b s) -> (b s) | s: whole has 2"));
  EXPECT_THAT([&] { return rule.shard_factor(1); },
              throws_invalid_argument(
                  "OpRule::shard_factor: factor s given, which must be whole by the rule softmax: "
                  "(b s) -> (b s) | s: whole; shard another one"));
  EXPECT_THAT(
      [&] { return rule.shard_factor(0, 0); },
      throws_invalid_argument("OpRule::shard_factor: split_factor 0 given; it must be at least 1"));
}

}  // namespace
}  // namespace tessera
