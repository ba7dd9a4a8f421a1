#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "tessera/plan/op_rule.h"

namespace tessera {
namespace {

using test::throws_invalid_argument;

TEST(OpRuleBindTest, FindsTheSizesOfFactorsAndOutputs) {
  const OpRule rule = OpRule::parse("mm: (m k), (k n) -> (m n), (1 m) | k: sum, n: whole");
  const auto sizes = rule.bind({{5, 0}, {0, 7}});
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{5, 0, 7}));
  EXPECT_EQ(rule.output_shape(0, sizes), (Shape{5, 7}));
  EXPECT_EQ(rule.output_shape(1, sizes), (Shape{1, 5}));
}

TEST(OpRuleBindTest, SizesOfOutputsOnlyAreGiven) {
  const OpRule rule = OpRule::parse("expand: (b) -> (a b)");
  EXPECT_EQ(rule.output_shape(0, rule.bind({{3}}, {{"a", 4}})), (Shape{4, 3}));
  EXPECT_EQ(rule.bind({{3}}, {{"a", 4}, {"b", 3}}), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(OpRule::parse("item: () -> ()").bind({{}}), std::vector<std::int64_t>{});
}

TEST(OpRuleBindTest, RefusesShapesThatDoNotFit) {
  const OpRule add = OpRule::parse("add: (a b), (1 b) -> (a b)");
  const std::string rule = "the rule add: (a b), (1 b) -> (a b)";
  EXPECT_THAT(
      [&] {
        return add.bind({{2, 3}});
      },
      throws_invalid_argument("OpRule::bind: 1 shape(s) given; " + rule +
                              " has 2 input(s); pass one for each"));
  EXPECT_THAT(
      [&] {
        return add.bind({{2, 3}, {3}});
      },
      throws_invalid_argument("OpRule::bind: input 1 has shape [3] with 1 dim(s); " + rule +
                              " wants 2"));
  EXPECT_THAT(
      [&] {
        return add.bind({{2, 3}, {2, 3}});
      },
      throws_invalid_argument("OpRule::bind: input 1 has size 2 at dim 0, where " + rule +
                              " has 1; name a factor there"));
  EXPECT_THAT(
      [&] {
        return add.bind({{2, 3}, {1, 4}});
      },
      throws_invalid_argument("OpRule::bind: factor b of " + rule +
                              " has size 3 by input 0 at dim 1 and size 4 by input 1 at dim 1; "
                              "they must agree: a dim that is broadcast is written 1"));
  EXPECT_THAT(
      [&] {
        return add.bind({{-2, 3}, {1, 3}});
      },
      throws_invalid_argument("OpRule::bind: factor a has size -2 by input 0 at dim 0; "
                              "sizes must be zero or more"));
}

TEST(OpRuleBindTest, RefusesSizesThatDoNotFit) {
  const OpRule expand = OpRule::parse("expand: (b) -> (a b)");
  const std::string rule = "the rule expand: (b) -> (a b)";
  EXPECT_THAT([&] { return expand.bind({{3}}); },
              throws_invalid_argument("OpRule::bind: factor a of " + rule +
                                      " is in no input; give its size"));
  EXPECT_THAT(
      [&] {
        return expand.bind({{3}}, {{"c", 1}});
      },
      throws_invalid_argument("OpRule::bind: a size of factor c given; " + rule +
                              " has no such factor"));
  EXPECT_THAT(
      [&] {
        return expand.bind({{3}}, {{"a", -1}});
      },
      throws_invalid_argument("OpRule::bind: factor a has size -1 by the given size; "
                              "sizes must be zero or more"));
  EXPECT_THAT(
      [&] {
        return expand.bind({{3}}, {{"a", 2}, {"b", 4}});
      },
      throws_invalid_argument("OpRule::bind: factor b of " + rule +
                              " has size 3 by input 0 at dim 0 and size 4 by the given "
                              "size; they must agree: a dim that is broadcast is written "
                              "1"));
  EXPECT_THAT(
      [&] {
        return expand.output_shape(1, {3, 2});
      },
      throws_invalid_argument("OpRule::output_shape: output 1 given; " + rule + " has 1"));
  EXPECT_THAT([&] { return expand.output_shape(0, {3}); },
              throws_invalid_argument("OpRule::output_shape: 1 size(s) given; " + rule +
                                      " has 2 factor(s); pass what bind returns"));
}

TEST(PointwiseRuleTest, BroadcastsFromTheLastDim) {
  const auto text = [](const std::vector<Shape>& shapes) {
    return pointwise_rule("f", shapes).to_string();
  };
  EXPECT_EQ(text({{8, 4}, {8, 4}}), "f: (a b), (a b) -> (a b)");
  EXPECT_EQ(text({{8, 4}, {1, 4}}), "f: (a b), (1 b) -> (a b)");
  EXPECT_EQ(text({{8, 1}, {4}}), "f: (a 1), (b) -> (a b)");
  EXPECT_EQ(text({{}, {2, 3, 4}, {3, 1}}), "f: (), (a b c), (b 1) -> (a b c)");
  EXPECT_EQ(text({{1, 4}, {4}}), "f: (a b), (b) -> (a b)");
  EXPECT_EQ(text({{0, 1}, {1, 3}}), "f: (a 1), (1 b) -> (a b)");
  EXPECT_EQ(text({{}}), "f: () -> ()");
}

TEST(PointwiseRuleTest, TakesTheLinearGroups) {
  EXPECT_EQ(pointwise_rule("add", {{8, 4}, {1, 4}}, {{0, 1}}).to_string(),
            "add: (a b), (1 b) -> (a b) | linear {0 1}");
  EXPECT_EQ(pointwise_rule("mul", {{2}, {}}, {{0}, {1}}).to_string(),
            "mul: (a), () -> (a) | linear {0}, {1}");
}

TEST(PointwiseRuleTest, NamesMoreDimsThanTheAlphabetHasLetters) {
  const OpRule rule = pointwise_rule("f", {Shape(54, 1)});
  EXPECT_EQ(rule.factors()[25].name, "z");
  EXPECT_EQ(rule.factors()[26].name, "a1");
  EXPECT_EQ(rule.factors()[53].name, "b2");
}

TEST(PointwiseRuleTest, RefusesWhatCannotBeBroadcast) {
  EXPECT_THAT([] { return pointwise_rule("add", {}); },
              throws_invalid_argument("pointwise_rule: no shapes given for add; pass the shape of "
                                      "every input"));
  EXPECT_THAT(
      [] {
        return pointwise_rule("add", {{8, 4}, {1, 3}});
      },
      throws_invalid_argument("pointwise_rule: add of an input of shape [1,3] has size 3 "
                              "where another has 4; sizes, aligned at the last dim, must "
                              "be equal or 1"));
  EXPECT_THAT(
      [] {
        return pointwise_rule("add", {{0}, {3}});
      },
      throws_invalid_argument("pointwise_rule: add of an input of shape [3] has size 3 "
                              "where another has 0; sizes, aligned at the last dim, must "
                              "be equal or 1"));
  EXPECT_THAT([] { return pointwise_rule("add", {{3}}, {{1}}); },
              throws_invalid_argument("OpRule::parse: \"add: (a) -> (a) | linear {1}\" given; the "
                                      "braces of linear name input 1; the rule has inputs 0 to 0"));
}

TEST(ReductionRuleTest, KeepsOrDropsTheReducedDims) {
  const auto text = [](std::int64_t ndim, const std::vector<std::int64_t>& dims, bool keepdim,
                       std::optional<ReduceOp> op) {
    return reduction_rule("f", ndim, dims, keepdim, op).to_string();
  };
  EXPECT_EQ(text(2, {1}, false, ReduceOp::sum), "f: (a b) -> (a) | b: sum | linear {0}");
  EXPECT_EQ(text(2, {-2}, true, ReduceOp::max), "f: (a b) -> (1 b) | a: max");
  EXPECT_EQ(text(2, {}, true, ReduceOp::avg), "f: (a b) -> (1 1) | a: mean, b: mean | linear {0}");
  EXPECT_EQ(text(2, {1}, false, std::nullopt), "f: (a b) -> (a) | b: whole");
  EXPECT_EQ(text(0, {}, false, ReduceOp::sum), "f: () -> () | linear {0}");
  EXPECT_EQ(text(0, {-1}, true, ReduceOp::min), "f: () -> ()");
}

TEST(ReductionRuleTest, RefusesDimsThatAreNotThere) {
  EXPECT_THAT(
      [] { return reduction_rule("sum", 2, {2}, false, ReduceOp::sum); },
      throws_invalid_argument("reduction_rule: dim 2 given for sum of a tensor of 2 dim(s); "
                              "allowed are -2 to 1"));
  EXPECT_THAT(
      [] {
        return reduction_rule("sum", 2, {1, -1}, false, ReduceOp::sum);
      },
      throws_invalid_argument("reduction_rule: sum over dims (1, -1) names dim 1 twice; "
                              "name every dim once"));
  EXPECT_THAT(
      [] { return reduction_rule("sum", 0, {1}, false, ReduceOp::sum); },
      throws_invalid_argument("reduction_rule: dim 1 given for sum of a tensor of 0 dim(s); "
                              "allowed are -1 to 0"));
  EXPECT_THAT([] { return reduction_rule("sum", -1, {}, false, ReduceOp::sum); },
              throws_invalid_argument("reduction_rule: -1 dims given for sum; pass zero or more"));
}

TEST(PermuteRuleTest, OutputDimsAreInputDimsInTheOrderGiven) {
  EXPECT_EQ(permute_rule("t", {1, 0}).to_string(), "t: (a b) -> (b a) | linear {0}");
  EXPECT_EQ(permute_rule("p", {2, 0, -2}).to_string(), "p: (a b c) -> (c a b) | linear {0}");
  EXPECT_EQ(permute_rule("p", {}).to_string(), "p: () -> () | linear {0}");
}

TEST(PermuteRuleTest, RefusesWhatIsNoPermutation) {
  EXPECT_THAT(
      [] {
        return permute_rule("p", {0, -2});
      },
      throws_invalid_argument("permute_rule: p by (0, -2) given; name every dim once"));
  EXPECT_THAT(
      [] {
        return permute_rule("p", {0, 2});
      },
      throws_invalid_argument("permute_rule: dim 2 given for p of a tensor of 2 dim(s); "
                              "allowed are -2 to 1"));
}

}  // namespace
}  // namespace tessera
