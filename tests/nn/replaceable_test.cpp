#include "tessera/nn/replaceable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

namespace tessera::nn {
namespace {

using ReplaceableLinear = Replaceable<torch::nn::Linear>;

torch::nn::AnyModule adds(double number) {
  return torch::nn::AnyModule(
      std::make_shared<torch::nn::FunctionalImpl>([=](at::Tensor x) { return x + number; }));
}

TEST(ReplaceableTest, IsTheModuleItselfUntilItIsReplaced) {
  ReplaceableLinear linear(3, 2);
  const at::Tensor x = torch::ones({4, 3});
  EXPECT_TRUE(torch::equal(linear(x), torch::linear(x, linear->weight, linear->bias)));
  EXPECT_TRUE(linear->stand_in().is_empty());
  linear->replace_with(adds(5));
  EXPECT_TRUE(torch::equal(linear(x), x + 5));
}

TEST(ReplaceableTest, LeavesOutArgumentsThatHaveDefaults) {
  Replaceable<torch::nn::EmbeddingBag> bag(torch::nn::EmbeddingBagOptions(4, 2).mode(torch::kSum));
  const at::Tensor input = torch::tensor({{0, 1}, {2, 2}}, torch::kLong);
  EXPECT_TRUE(torch::equal(bag(input), bag->weight.index({input}).sum(1)));
}

TEST(ReplaceableTest, HooksStayWhenItIsReplaced) {
  ReplaceableLinear linear(3, 2);
  int calls = 0;
  linear->add_forward_hook([&](torch::nn::Module&, TensorLeaves, TensorLeaves outputs) {
    ++calls;
    *outputs[0] = *outputs[0] * 2;
  });
  const at::Tensor x = torch::ones({4, 3});
  linear(x);
  linear->replace_with(adds(5));
  EXPECT_TRUE(torch::equal(linear(x), (x + 5) * 2));
  EXPECT_EQ(calls, 2);
}

TEST(ReplaceableTest, ACopyHasItsOwnParametersAndStandIn) {
  ReplaceableLinear linear(3, 2);
  const auto copy_of = [&] {
    return std::dynamic_pointer_cast<ReplaceableLinear::Impl>(linear->clone());
  };
  const auto plain = copy_of();
  ASSERT_NE(plain, nullptr);
  EXPECT_TRUE(torch::equal(plain->weight, linear->weight));
  EXPECT_FALSE(plain->weight.is_alias_of(linear->weight));
  linear->replace_with(adds(5));
  const auto replaced = copy_of();
  const at::Tensor x = torch::ones({4, 3});
  EXPECT_TRUE(torch::equal(replaced->forward(x), x + 5));
  EXPECT_EQ(plain->forward(x).size(1), 2);
}

}  // namespace
}  // namespace tessera::nn
