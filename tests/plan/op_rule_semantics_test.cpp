#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/op_rule_ops.h"
#include "plan/op_rule_oracle.h"
#include "tessera/plan/op_rule.h"

// Every rule here is tried in every combination of its strategies, over random meshes of one and
// two dims and shapes that divide, do not divide, and are empty.

namespace tessera::test {
namespace {

std::int64_t random_size(Random& random) { return random.one_in(8) ? 0 : random.between(1, 6); }

Shape random_sizes(Random& random, std::size_t ndim) {
  Shape shape(ndim);
  for (auto& size : shape) size = random_size(random);
  return shape;
}

/// A trial of a rule on random arrays; sizes are drawn per factor, named as in the rule.
Trial trial_of(Random& random, const std::string& rule_text, LocalOp op) {
  const OpRule rule = OpRule::parse(rule_text);
  const Shape sizes = random_sizes(random, rule.factors().size());
  Trial trial{rule, std::move(op), {}};
  for (const auto& dims : rule.inputs()) {
    Shape shape;
    for (const auto dim : dims) shape.push_back(dim < 0 ? 1 : sizes[static_cast<std::size_t>(dim)]);
    trial.inputs.push_back(random_array(random, shape));
  }
  return trial;
}

void expect_right(std::uint64_t seed, std::int64_t trials, std::int64_t at_least,
                  const std::function<Trial(Random&)>& make) {
  const Outcome outcome = try_rule(seed, trials, make);
  EXPECT_EQ(outcome.faults, 0) << "seed " << seed << ": " << outcome.first_fault;
  EXPECT_GE(outcome.combinations, at_least);
  ::testing::Test::RecordProperty("combinations", std::to_string(outcome.combinations));
}

TEST(OpRuleSemanticsTest, MatrixProduct) {
  expect_right(1, 200, 5000, [](Random& random) {
    return trial_of(random, "mm: (m k), (k n) -> (m n) | k: sum | linear {0}, {1}",
                    LetterOp{{"mk", "kn"}, "mn", product_of});
  });
}

TEST(OpRuleSemanticsTest, BatchedMatrixProduct) {
  expect_right(2, 100, 5000, [](Random& random) {
    return trial_of(random, "bmm: (b m k), (b k n) -> (b m n) | k: sum | linear {0}, {1}",
                    LetterOp{{"bmk", "bkn"}, "bmn", product_of});
  });
}

TEST(OpRuleSemanticsTest, MatrixProductWithBiasCountsItOnce) {
  const char* rules[] = {
      "addmm: (m n), (m k), (k n) -> (m n) | k: sum {0} | linear {0 1}, {0 2}",
      "addmm: (n), (m k), (k n) -> (m n) | k: sum {0} | linear {0 1}, {0 2}",
  };
  for (const auto* rule : rules) {
    expect_right(3, 100, 2500,
                 [&](Random& random) { return trial_of(random, rule, add_matrix_product); });
  }
}

TEST(OpRuleSemanticsTest, MaximumWithABoundPerRow) {
  const auto bounded_max = [](const LocalCall& call) {
    auto results = LetterOp{{"ab"}, "a", first_of, ReduceOp::max}({{call.inputs[1]}, {}});
    for (std::size_t i = 0; i < results[0].data.size(); ++i) {
      results[0].data[i] = std::max(results[0].data[i], call.inputs[0].data[i]);
    }
    return results;
  };
  expect_right(15, 200, 1500, [&](Random& random) {
    return trial_of(random, "bounded_max: (a), (a b) -> (a) | b: max {0}", bounded_max);
  });
}

TEST(OpRuleSemanticsTest, InnerProductOfVectorsHasNoDims) {
  expect_right(4, 200, 1500, [](Random& random) {
    return trial_of(random, "dot: (k), (k) -> () | k: sum | linear {0}, {1}",
                    LetterOp{{"k", "k"}, "", product_of});
  });
}

struct PointwiseOp {
  const char* name;
  std::vector<std::vector<std::int64_t>> linear;
  std::function<double(const Scalars&)> apply;
};

/// Returns the last dims of `full`, some of them as 1.
Shape broadcastable_shape(Random& random, const Shape& full) {
  Shape shape(full.begin() + random.between(0, std::ssize(full)), full.end());
  for (auto& size : shape) size = random.one_in(3) ? 1 : size;
  return shape;
}

/// The letters of an input that is broadcast to `full`, whose letters are a, b, c.
std::string broadcast_letters(const Shape& shape, const Shape& full) {
  std::string letters = std::string("abc").substr(full.size() - shape.size(), shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != full[full.size() - shape.size() + i]) letters[i] = '1';
  }
  return letters;
}

TEST(OpRuleSemanticsTest, PointwiseWithBroadcasting) {
  const std::vector<PointwiseOp> ops = {
      {"add", {{0, 1}}, sum_of},
      {"mul", {{0}, {1}}, product_of},
      {"div", {{0}}, [](const Scalars& x) { return x[0] / (std::abs(x[1]) + 1); }},
      {"maximum", {}, [](const Scalars& x) { return std::max(x[0], x[1]); }},
      {"add_squares", {}, [](const Scalars& x) { return x[0] * x[0] + x[1] * x[1]; }},
  };
  expect_right(5, 500, 10000, [&ops](Random& random) {
    const Shape full = random_sizes(random, static_cast<std::size_t>(random.between(0, 3)));
    std::vector<Shape> shapes{full, broadcastable_shape(random, full)};
    if (random.one_in(2)) std::swap(shapes[0], shapes[1]);
    std::vector<std::string> letters;
    std::vector<Array> inputs;
    for (const auto& shape : shapes) {
      letters.push_back(broadcast_letters(shape, full));
      inputs.push_back(random_array(random, shape));
    }
    const PointwiseOp& op = random.pick(ops);
    return Trial{pointwise_rule(op.name, shapes, op.linear),
                 LetterOp{letters, broadcast_letters(full, full), op.apply}, inputs};
  });
}

TEST(OpRuleSemanticsTest, ScalarAndTensor) {
  expect_right(6, 200, 1500, [](Random& random) {
    return trial_of(random, "mul: (a b), () -> (a b) | linear {0}, {1}",
                    LetterOp{{"ab", ""}, "ab", product_of});
  });
  expect_right(7, 200, 1500, [](Random& random) {
    return trial_of(random, "add_one: (a b) -> (a b)",
                    LetterOp{{"ab"}, "ab", [](const Scalars& x) { return x[0] + 1; }});
  });
}

TEST(OpRuleSemanticsTest, Reductions) {
  using enum ReduceOp;
  for (const auto op : {sum, max, min, product, avg}) {
    expect_right(8, 120, 1500, [op](Random& random) {
      const Shape shape = random_sizes(random, static_cast<std::size_t>(random.between(0, 3)));
      const std::string letters = std::string("abc").substr(0, shape.size());
      const bool keepdim = random.one_in(2);
      std::vector<std::int64_t> dims;
      std::string output;
      for (std::size_t i = 0; i < shape.size(); ++i) {
        const bool reduced = random.one_in(2);
        if (reduced) dims.push_back(static_cast<std::int64_t>(i));
        if (!reduced) output += letters[i];
        if (reduced && keepdim) output += '1';
      }
      // No dims would mean all.
      if (dims.empty()) output = keepdim ? std::string(shape.size(), '1') : "";
      return Trial{reduction_rule("reduce", std::ssize(shape), dims, keepdim, op),
                   LetterOp{{letters}, output, first_of, op},
                   {random_array(random, shape)}};
    });
  }
}

TEST(OpRuleSemanticsTest, MeanOfUnevenAndEmptyShards) {
  const Trial trial{reduction_rule("mean", 1, {0}, false, ReduceOp::avg),
                    LetterOp{{"a"}, "", first_of, ReduceOp::avg},
                    {Array({5})}};
  for (const std::int64_t ranks : {1, 2, 3, 4, 7}) {
    Random random(static_cast<std::uint64_t>(ranks));
    Trial filled = trial;
    filled.inputs[0] = random_array(random, {5});
    const Outcome outcome =
        try_all(random, filled, MeshShape({ranks}), all_strategies(random, filled.rule));
    EXPECT_EQ(outcome.faults, 0) << outcome.first_fault;
  }
}

TEST(OpRuleSemanticsTest, Permutations) {
  expect_right(9, 200, 5000, [](Random& random) {
    std::vector<std::int64_t> permutation(static_cast<std::size_t>(random.between(0, 4)));
    std::iota(permutation.begin(), permutation.end(), std::int64_t{0});
    random.shuffle(permutation);
    const std::string letters = std::string("abcd").substr(0, permutation.size());
    std::string output;
    for (const auto dim : permutation) output += letters[static_cast<std::size_t>(dim)];
    return Trial{permute_rule("permute", permutation),
                 LetterOp{{letters}, output, first_of},
                 {random_array(random, random_sizes(random, permutation.size()))}};
  });
}

TEST(OpRuleSemanticsTest, SoftmaxNeedsItsDimWhole) {
  expect_right(10, 300, 3000, [](Random& random) {
    return trial_of(random, "softmax: (a b s) -> (a b s) | s: whole", softmax);
  });
}

TEST(OpRuleSemanticsTest, FactorsMayPassIntoOneOutputAndBeReducedInAnother) {
  expect_right(11, 400, 1000, [](Random& random) {
    return trial_of(random, "norm_backward: (b d), (b d) -> (b d), (d), (b 1) | b: sum, d: whole",
                    row_norm_backward);
  });
}

TEST(OpRuleSemanticsTest, EmbeddingMasksWhatIsElsewhere) {
  expect_right(12, 150, 5000, [](Random& random) {
    Trial trial =
        trial_of(random, "embedding: (v d), (b s) -> (b s d) | v: sum | linear {0}", embedding);
    const std::int64_t rows = std::max<std::int64_t>(trial.inputs[0].shape[0], 1);
    for (auto& number : trial.inputs[1].data) {
      number = static_cast<double>(random.between(0, rows - 1));
    }
    return trial;
  });
}

TEST(OpRuleSemanticsTest, FactorsOfOutputsOnly) {
  expect_right(13, 200, 3000, [](Random& random) {
    Trial trial = trial_of(random, "expand: (b) -> (a b) | linear {0}", expand_rows);
    trial.sizes = {{"a", random_size(random)}};
    return trial;
  });
  expect_right(14, 200, 2000, [](Random& random) {
    Trial trial = trial_of(random, "cat: (a b), (c b) -> (d b) | a c d: whole | linear {0 1}",
                           concatenate_rows);
    trial.sizes = {{"d", trial.inputs[0].shape[0] + trial.inputs[1].shape[0]}};
    return trial;
  });
}

// The trials above are worth something only if they can fail.

/// A rule that claims too much must be caught, and often.
void expect_caught(std::uint64_t seed, const std::function<Trial(Random&)>& make) {
  const Outcome outcome = try_rule(seed, 100, make);
  EXPECT_GT(outcome.faults, 100) << "of " << outcome.combinations;
  EXPECT_LT(outcome.faults, outcome.combinations) << "what is right about it must stay right";
}

TEST(WrongOpRuleTest, AddingAConstantIsNotLinear) {
  expect_caught(21, [](Random& random) {
    return trial_of(random, "add_one: (a b) -> (a b) | linear {0}",
                    LetterOp{{"ab"}, "ab", [](const Scalars& x) { return x[0] + 1; }});
  });
}

TEST(WrongOpRuleTest, SumIsNotLinearInEachTermAlone) {
  expect_caught(22, [](Random& random) {
    return trial_of(random, "add: (a b), (a b) -> (a b) | linear {0}, {1}",
                    LetterOp{{"ab", "ab"}, "ab", sum_of});
  });
}

TEST(WrongOpRuleTest, ProductIsNotLinearInBothTogether) {
  expect_caught(23, [](Random& random) {
    return trial_of(random, "mul: (a b), (a b) -> (a b) | linear {0 1}",
                    LetterOp{{"ab", "ab"}, "ab", product_of});
  });
}

TEST(WrongOpRuleTest, SoftmaxDoesNotPassItsDimThrough) {
  expect_caught(
      24, [](Random& random) { return trial_of(random, "softmax: (a b s) -> (a b s)", softmax); });
}

TEST(WrongOpRuleTest, MaximumIsNoSum) {
  expect_caught(25, [](Random& random) {
    return trial_of(random, "amax: (a b) -> (a) | b: sum",
                    LetterOp{{"ab"}, "a", first_of, ReduceOp::max});
  });
}

TEST(WrongOpRuleTest, BiasIsNotReplicatedUnderASplitSum) {
  expect_caught(26, [](Random& random) {
    return trial_of(random, "addmm: (m n), (m k), (k n) -> (m n) | k: sum", add_matrix_product);
  });
}

TEST(WrongOpRuleTest, LocalMeansAreNotToBeAveragedWhenUneven) {
  // The notation refuses avg, so the wrong strategy is made by hand: local means, averaged.
  const OpRule rule = OpRule::parse("mean: (a) -> () | a: whole");
  const Strategy wrong{{Shard(0)}, {Partial(ReduceOp::avg)}, std::nullopt};
  const LetterOp mean{{"a"}, "", first_of, ReduceOp::avg};
  Random random(27);
  const MeshShape mesh({3});
  const Trial even{rule, mean, {random_array(random, {6})}};
  EXPECT_EQ(try_all(random, even, mesh, {wrong}).faults, 0);
  Array values({5});
  values.data = {1, 2, 3, 4, 10};  // 4, while the means of 1 2, 3 4 and 10 average to 5.
  const Outcome uneven = try_all(random, Trial{rule, mean, {values}}, mesh, {wrong});
  EXPECT_EQ(uneven.faults, 1);
  EXPECT_THAT(uneven.first_fault,
              ::testing::HasSubstr("in [][P(avg)] on [3]: element 0 is 5 instead of 4"));
}

TEST(WrongOpRuleTest, LocalMeanOfAnEmptyShardIsNotANumber) {
  const Strategy right = reduction_rule("mean", 1, {0}, false, ReduceOp::avg).shard_factor(0);
  const LetterOp mean{{"a"}, "", first_of, ReduceOp::avg};
  // Under this rule the trial does not know that the factor is a mean, and divides locally.
  Random random(28);
  const Trial trial{OpRule::parse("mean: (a) -> () | a: sum"), mean, {random_array(random, {5})}};
  EXPECT_EQ(try_all(random, trial, MeshShape({4}), {right}).faults, 1);
}

}  // namespace
}  // namespace tessera::test
