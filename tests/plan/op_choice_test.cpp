#include "tessera/plan/op_choice.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "tessera/base/concat.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera {
namespace {

using test::throws_invalid_argument;

const MeshShape kFour({4}, {"tp"});
const MeshShape kGrid({2, 2}, {"dp", "tp"});

OpRule matmul() { return OpRule::parse("mm: (m k), (k n) -> (m n) | k: sum | linear {0}, {1}"); }

OpInput on(const MeshShape& mesh, const char* placements, Shape shape,
           std::int64_t element_size = 4) {
  return {Layout(mesh, parse_placements(placements), std::move(shape)), element_size};
}

/// The placements of all tensors of a choice: `[S(0)], [R] -> [S(0)]`.
std::string text_of(const OpChoice& choice) {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  for (const auto& layout : choice.inputs) inputs.push_back(to_string(layout.placements()));
  for (const auto& layout : choice.outputs) outputs.push_back(to_string(layout.placements()));
  return concat(joined(inputs), " -> ", joined(outputs));
}

std::string matmul_on_four(const char* a, const char* b, Shape a_shape = {8, 8},
                           Shape b_shape = {8, 8}) {
  return text_of(choose_layouts(
      matmul(), {on(kFour, a, std::move(a_shape)), on(kFour, b, std::move(b_shape))}));
}

TEST(ChooseLayoutsTest, InputsThatFitStayAndMoveNothing) {
  for (const auto& [a, b, expected] : std::vector<std::array<const char*, 3>>{
           {"S0", "R", "[S(0)], [R] -> [S(0)]"},
           {"R", "S1", "[R], [S(1)] -> [S(1)]"},
           {"S1", "S0", "[S(1)], [S(0)] -> [P(sum)]"},
           {"R", "R", "[R], [R] -> [R]"},
           {"P", "R", "[P(sum)], [R] -> [P(sum)]"},
           {"R", "P(avg)", "[R], [P(avg)] -> [P(avg)]"},
           {"SS(0,2)", "R", "[SS(0,2)], [R] -> [SS(0,2)]"},
           {"SS(1,2)", "SS(0,2)", "[SS(1,2)], [SS(0,2)] -> [P(sum)]"},
           {"SS(1,1)", "S0", "[S(1)], [S(0)] -> [P(sum)]"},
       }) {
    const OpInput left = on(kFour, a, {8, 8});
    const OpInput right = on(kFour, b, {8, 8});
    const OpChoice choice = choose_layouts(matmul(), {left, right});
    EXPECT_EQ(text_of(choice), expected);
    EXPECT_EQ(choice.bytes, 0);
    EXPECT_EQ(choice.charged_bytes, 0);
    EXPECT_TRUE(choice.exhaustive);
    EXPECT_EQ(choice.inputs, (std::vector<Layout>{left.layout, right.layout}));
    EXPECT_EQ(choice.outputs[0].shape(), (Shape{8, 8}));
  }
}

TEST(ChooseLayoutsTest, SayWhichStrategyEachMeshDimTakes) {
  const OpChoice choice =
      choose_layouts(matmul(), {on(kGrid, "S0,S1", {8, 8}), on(kGrid, "R,S0", {8, 8})});
  ASSERT_EQ(choice.strategies.size(), 2U);
  EXPECT_EQ(concat(choice.strategies[0]), "S(0), R -> S(0)");
  EXPECT_EQ(choice.strategies[1], matmul().shard_factor(1));
  EXPECT_EQ(text_of(choice), "[S(0),S(1)], [R,S(0)] -> [S(0),P(sum)]");
  EXPECT_EQ(choice.bytes, 0);
}

TEST(ChooseLayoutsTest, ReplicasAreCutWhereThatIsFree) {
  EXPECT_EQ(matmul_on_four("R", "S0"), "[S(1)], [S(0)] -> [P(sum)]");
  const OpRule add = pointwise_rule("add", {{8, 8}, {8, 8}}, {{0, 1}});
  const OpChoice choice =
      choose_layouts(add, {on(kGrid, "S0,R", {8, 8}), on(kGrid, "R,S1", {8, 8})});
  EXPECT_EQ(text_of(choice), "[S(0),S(1)], [S(0),S(1)] -> [S(0),S(1)]");
  EXPECT_EQ(choice.bytes, 0);
}

TEST(ChooseLayoutsTest, TheSmallerInputMoves) {
  EXPECT_EQ(matmul_on_four("S0", "S1", {64, 8}, {8, 8}), "[S(0)], [R] -> [S(0)]");
  EXPECT_EQ(matmul_on_four("S0", "S1", {8, 8}, {8, 64}), "[R], [S(1)] -> [S(1)]");

  const OpRule add = pointwise_rule("add", {{8, 8}, {8, 8}}, {{0, 1}});
  const OpChoice equal = choose_layouts(add, {on(kFour, "S0", {8, 8}), on(kFour, "S1", {8, 8})});
  EXPECT_EQ(text_of(equal), "[S(0)], [S(0)] -> [S(0)]") << "the earlier factor";
  EXPECT_EQ(equal.bytes, 48) << "3 of the 4 blocks of 2x2 that make 2 rows";
  const OpChoice halves =
      choose_layouts(add, {on(kFour, "S0", {8, 8}, 2), on(kFour, "S1", {8, 8}, 4)});
  EXPECT_EQ(text_of(halves), "[S(1)], [S(1)] -> [S(1)]") << "half the element size";

  const OpRule add_row = pointwise_rule("add", {{8, 8}, {1, 8}}, {{0, 1}});
  const OpChoice row = choose_layouts(add_row, {on(kFour, "S0", {8, 8}), on(kFour, "S1", {1, 8})});
  EXPECT_EQ(text_of(row), "[S(0)], [R] -> [S(0)]");
}

TEST(ChooseLayoutsTest, WholeFactorsAreMadeWholeByTheCheapestMove) {
  const OpRule softmax = OpRule::parse("softmax: (b s) -> (b s) | s: whole");
  EXPECT_EQ(text_of(choose_layouts(softmax, {on(kFour, "S1", {8, 8})})), "[S(0)] -> [S(0)]");
  EXPECT_EQ(text_of(choose_layouts(softmax, {on(kGrid, "S0,S1", {8, 8})})),
            "[S(0),S(0)] -> [S(0),S(0)]");
  EXPECT_EQ(
      text_of(choose_layouts(OpRule::parse("sort: (s) -> (s) | s: whole"), {on(kFour, "S0", {8})})),
      "[R] -> [R]");
}

TEST(ChooseLayoutsTest, PartialThatCannotPassIsReduced) {
  const OpRule exp = pointwise_rule("exp", {{8, 8}});
  EXPECT_EQ(text_of(choose_layouts(exp, {on(kFour, "P", {8, 8})})), "[S(0)] -> [S(0)]");
  EXPECT_EQ(text_of(choose_layouts(exp, {on(kFour, "P(max)", {8, 8})})), "[S(0)] -> [S(0)]");
  EXPECT_EQ(text_of(choose_layouts(OpRule::parse("exp: () -> ()"), {on(kFour, "P", {})})),
            "[R] -> [R]");
  // Linear, but not for contributions to a maximum.
  const OpRule neg = pointwise_rule("neg", {{8, 8}}, {{0}});
  EXPECT_EQ(text_of(choose_layouts(neg, {on(kFour, "P(max)", {8, 8})})), "[S(0)] -> [S(0)]");
}

TEST(ChooseLayoutsTest, PartialMeetsOtherInputs) {
  const OpRule add = pointwise_rule("add", {{8, 8}, {8, 8}}, {{0, 1}});
  const auto added = [&](const char* a, const char* b) {
    return text_of(choose_layouts(add, {on(kFour, a, {8, 8}), on(kFour, b, {8, 8})}));
  };
  EXPECT_EQ(added("P", "P"), "[P(sum)], [P(sum)] -> [P(sum)]");
  EXPECT_EQ(added("P", "R"), "[P(sum)], [P(sum)] -> [P(sum)]") << "one rank adds the replica";
  EXPECT_EQ(added("P", "S0"), "[S(0)], [S(0)] -> [S(0)]") << "a shard is not made Partial";
  EXPECT_EQ(added("P", "P(avg)"), "[S(0)], [S(0)] -> [S(0)]");
  const OpRule mul = pointwise_rule("mul", {{8, 8}, {8, 8}}, {{0}, {1}});
  EXPECT_EQ(text_of(choose_layouts(mul, {on(kFour, "P", {8, 8}), on(kFour, "S1", {8, 8})})),
            "[S(1)], [S(1)] -> [S(1)]");
}

TEST(ChooseLayoutsTest, MovingForAPartialIsChargedWithItsReduction) {
  // Sharded rows times sharded rows, as in FSDP: with many rows the weight is gathered, although
  // exchanging the rows for a Partial result would receive less.
  const std::vector<OpInput> inputs = {on(kFour, "S0", {64, 32}), on(kFour, "S0", {32, 32})};
  const OpChoice choice = choose_layouts(matmul(), inputs);
  EXPECT_EQ(text_of(choice), "[S(0)], [R] -> [S(0)]");
  EXPECT_EQ(choice.bytes, 24 * 32 * 4);
  const Layout exchanged(kFour, {Shard(1)}, {64, 32});
  EXPECT_LT(redistribution_bytes(inputs[0].layout, exchanged, 4), choice.bytes);

  // With few rows, the exchange and the reduction together are cheaper.
  const OpChoice few =
      choose_layouts(matmul(), {on(kFour, "S0", {4, 32}), on(kFour, "S0", {32, 32})});
  EXPECT_EQ(text_of(few), "[S(1)], [S(0)] -> [P(sum)]");
  EXPECT_EQ(few.bytes, 3 * 8 * 4) << "3 of 4 rows, 8 columns each";
  EXPECT_EQ(few.charged_bytes, 3 * 32 * 4) << "one row from each of the 3 others";
}

TEST(ChooseLayoutsTest, MeansComeWithTheirGlobalCount) {
  const OpRule mean = reduction_rule("mean", 2, {0, 1}, false, ReduceOp::avg);
  const OpChoice cut = choose_layouts(mean, {on(kFour, "S0", {5, 3})});
  EXPECT_EQ(text_of(cut), "[S(0)] -> [P(sum)]");
  EXPECT_EQ(cut.mean_count, 15);
  EXPECT_EQ(choose_layouts(mean, {on(kFour, "S1", {5, 0})}).mean_count, 0);
  EXPECT_EQ(choose_layouts(mean, {on(kFour, "R", {5, 3})}).mean_count, std::nullopt);
  EXPECT_EQ(choose_layouts(mean, {on(kFour, "P", {5, 3})}).mean_count, std::nullopt);
  EXPECT_EQ(choose_layouts(mean, {on(MeshShape({1}), "S0", {5, 3})}).mean_count, std::nullopt);
  const OpRule rows = reduction_rule("mean", 2, {1}, false, ReduceOp::avg);
  EXPECT_EQ(choose_layouts(rows, {on(kFour, "S0", {5, 3})}).mean_count, std::nullopt);
  EXPECT_EQ(choose_layouts(rows, {on(kGrid, "S0,S1", {5, 3})}).mean_count, 3);
}

TEST(ChooseLayoutsTest, FixedOutputsStayAndInputsMove) {
  const OpRule add = pointwise_rule("add_", {{8, 8}, {8, 8}}, {{0, 1}});
  const auto added = [&](const char* a, const char* b) {
    const OpInput self = on(kFour, a, {8, 8});
    const OpChoice choice =
        choose_layouts(add, {self, on(kFour, b, {8, 8})}, {.fixed_outputs = {self.layout}});
    EXPECT_EQ(choice.outputs[0], self.layout);
    EXPECT_EQ(choice.inputs[0], self.layout);
    EXPECT_EQ(choice.charged_bytes, 0);
    return text_of(choice);
  };
  EXPECT_EQ(added("R", "S0"), "[R], [R] -> [R]");
  EXPECT_EQ(added("S0", "S1"), "[S(0)], [S(0)] -> [S(0)]");
  EXPECT_EQ(added("S1", "S0"), "[S(1)], [S(1)] -> [S(1)]");
  EXPECT_EQ(added("S0", "P"), "[S(0)], [S(0)] -> [S(0)]");
  EXPECT_EQ(added("P", "S0"), "[P(sum)], [P(sum)] -> [P(sum)]");
  EXPECT_EQ(added("P(avg)", "R"), "[P(avg)], [P(avg)] -> [P(avg)]");
  EXPECT_EQ(added("SS(0,2)", "S0"), "[SS(0,2)], [SS(0,2)] -> [SS(0,2)]");
}

TEST(ChooseLayoutsTest, FixedOutputsNeedNotBeInputs) {
  const auto fixed = [](const char* out) {
    return text_of(
        choose_layouts(matmul(), {on(kFour, "R", {8, 8}), on(kFour, "R", {8, 8})},
                       {.fixed_outputs = {Layout(kFour, parse_placements(out), {8, 8})}}));
  };
  EXPECT_EQ(fixed("S0"), "[S(0)], [R] -> [S(0)]");
  EXPECT_EQ(fixed("SS(1,2)"), "[R], [SS(1,2)] -> [SS(1,2)]");
  EXPECT_EQ(fixed("P"), "[P(sum)], [R] -> [P(sum)]");
  EXPECT_EQ(fixed("P(avg)"), "[P(avg)], [R] -> [P(avg)]");
}

TEST(ChooseLayoutsTest, TheOrderOfCutsIsKept) {
  const Layout reversed(kGrid, {Shard(0), Shard(0)}, {8, 8}, {1, 0});
  const Layout forward(kGrid, {Shard(0), Shard(0)}, {8, 8});
  const OpRule add = pointwise_rule("add", {{8, 8}, {8, 8}}, {{0, 1}});
  const OpChoice same = choose_layouts(add, {{reversed, 4}, {reversed, 4}});
  EXPECT_EQ(same.bytes, 0);
  EXPECT_EQ(same.outputs[0], reversed);
  EXPECT_EQ(choose_layouts(add, {{forward, 4}, {reversed, 8}}).outputs[0], reversed);
  EXPECT_EQ(choose_layouts(add, {{forward, 8}, {reversed, 4}}).outputs[0], forward);
  EXPECT_EQ(
      choose_layouts(add, {{forward, 4}, {forward, 4}}, {.fixed_outputs = {reversed}}).inputs[1],
      reversed);
}

TEST(ChooseLayoutsTest, MeshDimsOfOneRankKeepTheirNotation) {
  const MeshShape mesh({1, 4});
  const OpChoice choice =
      choose_layouts(matmul(), {on(mesh, "S0,S1", {8, 8}), on(mesh, "R,S0", {8, 8})});
  EXPECT_EQ(text_of(choice), "[S(0),S(1)], [R,S(0)] -> [S(0),P(sum)]");
  const MeshShape one({1});
  const OpChoice odd = choose_layouts(matmul(), {on(one, "P(max)", {8, 8}), on(one, "S0", {8, 8})});
  EXPECT_EQ(text_of(odd), "[P(max)], [S(0)] -> [P(sum)]") << "one rank: all names are alike";
  EXPECT_EQ(odd.bytes, 0);
  EXPECT_EQ(choose_layouts(matmul(), {on(MeshShape({}), "", {8, 8}), on(MeshShape({}), "", {8, 8})})
                .bytes,
            0);
}

TEST(ChooseLayoutsTest, EmptyAndZeroDimTensors) {
  EXPECT_EQ(choose_layouts(matmul(), {on(kFour, "S0", {0, 8}), on(kFour, "S0", {8, 0})})
                .outputs[0]
                .shape(),
            (Shape{0, 0}));
  const OpRule scale = pointwise_rule("mul", {{5}, {}}, {{0}, {1}});
  EXPECT_EQ(text_of(choose_layouts(scale, {on(kFour, "S0", {5}), on(kFour, "R", {})})),
            "[S(0)], [R] -> [S(0)]");
  EXPECT_EQ(text_of(choose_layouts(scale, {on(kFour, "S0", {5}), on(kFour, "P", {})})),
            "[S(0)], [R] -> [S(0)]");
}

// Nothing costs anything when there are no elements, so that only ties decide.

TEST(ChooseLayoutsTest, TiesLeaveMoreInputsAsTheyAre) {
  const OpRule add = pointwise_rule("add", {{0, 8}, {0, 8}});
  const OpChoice choice =
      choose_layouts(add, {on(kGrid, "S0,S1", {0, 8}), on(kGrid, "S1,S0", {0, 8})});
  EXPECT_EQ(text_of(choice), "[S(0),S(1)], [S(0),S(1)] -> [S(0),S(1)]");
}

TEST(ChooseLayoutsTest, TiesThenLeaveMorePlacementsAsTheyAre) {
  const OpRule softmax = OpRule::parse("softmax: (b s) -> (b s) | s: whole");
  EXPECT_EQ(text_of(choose_layouts(softmax, {on(kGrid, "S1,S0", {0, 8})})), "[R,S(0)] -> [R,S(0)]");
}

TEST(ChooseLayoutsTest, TiesThenAvoidPartial) {
  const OpRule rule = OpRule::parse("f: (k m), (k m) -> (m) | k: sum");
  EXPECT_EQ(text_of(choose_layouts(rule, {on(kFour, "S0", {8, 0}), on(kFour, "S1", {8, 0})})),
            "[S(1)], [S(1)] -> [S(0)]");
}

TEST(ChooseLayoutsTest, TiesThenTakeTheEarlierFactor) {
  const OpRule rule = OpRule::parse("f: (a b c) -> (a b c) | a: whole");
  EXPECT_EQ(text_of(choose_layouts(rule, {on(kFour, "S0", {8, 8, 8})})), "[S(1)] -> [S(1)]");
}

TEST(ChooseLayoutsTest, SizesOfOutputsOnlyAreGiven) {
  const OpRule expand = OpRule::parse("expand: (b) -> (a b)");
  const OpChoice choice =
      choose_layouts(expand, {on(kFour, "R", {8})},
                     {.fixed_outputs = {Layout(kFour, {Shard(0)}, {6, 8})}, .sizes = {{"a", 6}}});
  EXPECT_EQ(text_of(choice), "[R] -> [S(0)]");
}

TEST(ChooseLayoutsTest, RefusesInputsThatDoNotFit) {
  const std::string rule = "mm: (m k), (k n) -> (m n) | k: sum | linear {0}, {1}";
  const OpInput square = on(kFour, "R", {8, 8});
  EXPECT_THAT([&] { return choose_layouts(matmul(), {square}); },
              throws_invalid_argument("choose_layouts: 1 input(s) given; the rule " + rule +
                                      " has 2; pass one for each"));
  EXPECT_THAT(
      [&] {
        return choose_layouts(matmul(), {square, on(kGrid, "R,R", {8, 8})});
      },
      throws_invalid_argument(
          "choose_layouts: input 1 of mm is on [dp=2, tp=2] and input 0 on [tp=4]; "
          "redistribute one of them to the mesh of the other first"));
  EXPECT_THAT(
      [&] {
        return choose_layouts(matmul(), {square, on(kFour, "R", {8, 8}, 0)});
      },
      throws_invalid_argument("choose_layouts: element_size 0 given for input 1 of mm; it "
                              "is the bytes of one element, at least 1"));
  EXPECT_THAT(
      [&] {
        return choose_layouts(matmul(), {square, square}, {.max_combinations = 0});
      },
      throws_invalid_argument("choose_layouts: max_combinations 0 given; it must be at least 1"));
  EXPECT_THAT(
      [&] {
        return choose_layouts(matmul(), {square, on(kFour, "R", {7, 8})});
      },
      throws_invalid_argument(
          "OpRule::bind: factor k of the rule " + rule +
          " has size 8 by input 0 at dim 1 and size 7 by input 1 at dim 0; they must "
          "agree: a dim that is broadcast is written 1"));
}

TEST(ChooseLayoutsTest, RefusesFixedOutputsThatDoNotFit) {
  const OpInput square = on(kFour, "S0", {8, 8});
  const auto fix = [&](std::vector<std::optional<Layout>> fixed) {
    return choose_layouts(pointwise_rule("exp_", {{8, 8}}), {square},
                          {.fixed_outputs = std::move(fixed)});
  };
  EXPECT_THAT(
      [&] {
        return fix({square.layout, std::nullopt});
      },
      throws_invalid_argument(
          "choose_layouts: 2 fixed output(s) given; the rule exp_: (a b) -> (a b) has 1 "
          "output(s); pass an entry for each, or none at all"));
  EXPECT_THAT(
      [&] {
        return fix({Layout(kGrid, parse_placements("R,R"), {8, 8})});
      },
      throws_invalid_argument(
          "choose_layouts: output 0 of exp_ is fixed to [8,8][R,R] on [dp=2, tp=2] and "
          "the inputs are on [tp=4]; redistribute the inputs to the mesh of the output "
          "first"));
  EXPECT_THAT([&] { return fix({Layout(kFour, {Replicate()}, {8})}); },
              throws_invalid_argument(
                  "choose_layouts: output 0 of exp_ is fixed to [8][R] on [tp=4] and the inputs "
                  "give shape [8,8]; fix a layout of that shape"));
  EXPECT_THAT(
      [&] {
        return fix({Layout(kFour, {Partial()}, {8, 8})});
      },
      throws_invalid_argument(
          "choose_layouts: along mesh dim tp the caller wants output 0 as P(sum) of exp_: "
          "(a b) -> (a b); from the present inputs it can be had as: R -> R | S(0) -> S(0) "
          "| S(1) -> S(1); redistribute the tensor that is written to one of these first"));
}

TEST(ChooseLayoutsTest, RefusesFixedOutputsThatNestDifferently) {
  const Layout reversed(kGrid, {Shard(0), Shard(0)}, {8}, {1, 0});
  const Layout forward(kGrid, {Shard(0), Shard(0)}, {8});
  EXPECT_THAT(
      [&] {
        return choose_layouts(OpRule::parse("both: (a) -> (a), (a)"), {{forward, 4}},
                              {.fixed_outputs = {forward, reversed}});
      },
      throws_invalid_argument(
          "choose_layouts: outputs of both: (a) -> (a), (a) are fixed to [8][S(0),S(0)] on "
          "[dp=2, tp=2], [8][S(0),S(0)]{dim 0: tp,dp} on [dp=2, tp=2], which cut one factor in "
          "different orders; redistribute one of them first"));
}

}  // namespace
}  // namespace tessera
