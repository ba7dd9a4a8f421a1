#include "tessera/nn/hooks.h"

#include <sstream>

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "tessera/base/error.h"
#include "tessera/nn/hooked.h"

namespace tessera::nn {
namespace {

using testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  Hooked<torch::nn::Linear> fc{nullptr};
  torch::nn::Linear plain{nullptr};
  torch::nn::Sequential layers;
  torch::nn::ModuleList list;

  NetImpl() {
    fc = register_module("fc", Hooked<torch::nn::Linear>(3, 4));
    plain = register_module("plain", torch::nn::Linear(4, 4));
    layers =
        register_module("layers", torch::nn::Sequential(torch::nn::Linear(4, 5), torch::nn::ReLU(),
                                                        Hooked<torch::nn::Linear>(5, 2)));
    list = register_module("list", torch::nn::ModuleList(torch::nn::Linear(2, 2)));
  }

  at::Tensor forward(const at::Tensor& x) { return layers->forward(plain(fc(x))); }
};
TORCH_MODULE(Net);

std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  ADD_FAILURE() << "no InvalidArgument";
  return "";
}

void double_first(torch::nn::Module& /*module*/, TensorLeaves inputs) {
  *inputs[0] = *inputs[0] * 2;
}

void negate_first(torch::nn::Module& /*module*/, TensorLeaves /*inputs*/, TensorLeaves outputs) {
  *outputs[0] = -*outputs[0];
}

TEST(HooksTest, AHookedModuleRunsItsHooksAroundForward) {
  Hooked<torch::nn::Linear> fc(torch::nn::LinearOptions(3, 4).bias(false));
  const auto x = torch::randn({2, 3});
  const auto expected = torch::linear(x, fc->weight);
  EXPECT_TRUE(torch::equal(fc(x), expected));
  auto before = fc->add_forward_pre_hook(double_first);
  EXPECT_TRUE(torch::allclose(fc(x), 2 * expected));
  EXPECT_TRUE(torch::allclose(fc->forward(x), 2 * expected));
  auto after = fc->add_forward_hook(negate_first);
  EXPECT_TRUE(torch::allclose(fc(x), -2 * expected));
  before.remove();
  before.remove();
  EXPECT_TRUE(torch::allclose(fc(x), -expected));
  after.remove();
  EXPECT_FALSE(fc->has_hooks());
  EXPECT_TRUE(torch::equal(fc(x), expected));
}

TEST(HooksTest, HooksRunInOrderAndSeeWhatForwardGot) {
  Hooked<torch::nn::Linear> fc(3, 4);
  std::vector<std::string> calls;
  const auto x = torch::randn({2, 3});
  fc->add_forward_pre_hook([&](torch::nn::Module& module, TensorLeaves inputs) {
    EXPECT_EQ(&module, fc.get());
    EXPECT_EQ(inputs.size(), 1U);
    calls.emplace_back("first");
    *inputs[0] = *inputs[0] + 1;
  });
  fc->add_forward_pre_hook([&](torch::nn::Module&, TensorLeaves) { calls.emplace_back("second"); });
  fc->add_forward_hook([&](torch::nn::Module&, TensorLeaves inputs, TensorLeaves outputs) {
    calls.emplace_back("after");
    EXPECT_TRUE(torch::equal(*inputs[0], x + 1));
    EXPECT_EQ(outputs.size(), 1U);
  });
  EXPECT_TRUE(torch::equal(fc(x), torch::linear(x + 1, fc->weight, fc->bias)));
  EXPECT_THAT(calls, testing::ElementsAre("first", "second", "after"));
}

TEST(HooksTest, AHookedModuleIsADropIn) {
  Hooked<torch::nn::Linear> fc(3, 4);
  const torch::nn::Linear plain(3, 4);
  std::ostringstream hooked_text;
  std::ostringstream plain_text;
  hooked_text << fc;
  plain_text << plain;
  EXPECT_EQ(hooked_text.str(), plain_text.str());
  torch::nn::LinearImpl& base = *fc;
  EXPECT_EQ(base.options.in_features(), 3);
  torch::nn::AnyModule any(fc);
  const auto x = torch::randn({2, 3});
  EXPECT_TRUE(torch::equal(any.forward(x), fc(x)));
  Hooked<torch::nn::Linear> empty = nullptr;
  EXPECT_TRUE(empty.is_empty());
}

TEST(HooksTest, ArgumentsWithDefaultsMayBeLeftOut) {
  Hooked<torch::nn::LSTM> lstm(3, 4);
  const auto x = torch::randn({5, 2, 3});
  torch::nn::LSTM plain(std::shared_ptr<torch::nn::LSTMImpl>(lstm.ptr()));
  const auto [expected, state] = plain(x);
  EXPECT_TRUE(torch::equal(std::get<0>(lstm(x)), expected));
  std::size_t outputs_seen = 0;
  lstm->add_forward_hook([&](torch::nn::Module&, TensorLeaves, TensorLeaves outputs) {
    outputs_seen = outputs.size();
    *outputs[0] = -*outputs[0];
  });
  EXPECT_TRUE(torch::equal(std::get<0>(lstm(x)), -expected));
  EXPECT_TRUE(torch::equal(std::get<0>(lstm(x, state)), -std::get<0>(plain(x, state))));
  EXPECT_EQ(outputs_seen, 3U);
}

TEST(HooksTest, ACloneHasItsOwnTensorsAndTheSameHooks) {
  Hooked<torch::nn::Linear> fc(3, 4);
  fc->add_forward_hook(negate_first);
  const auto copy = std::dynamic_pointer_cast<HookedImpl<torch::nn::LinearImpl>>(fc->clone());
  ASSERT_NE(copy, nullptr);
  const auto x = torch::randn({2, 3});
  EXPECT_TRUE(torch::equal(copy->forward(x), fc(x)));
  {
    const torch::NoGradGuard no_grad;
    copy->weight.zero_();
    EXPECT_TRUE(torch::equal(copy->named_parameters()["weight"], copy->weight));
  }
  EXPECT_FALSE(torch::equal(fc->weight, copy->weight));
  copy->add_forward_hook(negate_first);
  EXPECT_FALSE(torch::equal(copy->forward(x), -torch::linear(x, copy->weight, copy->bias)));
  EXPECT_TRUE(torch::equal(fc(x), -torch::linear(x, fc->weight, fc->bias)));
}

TEST(HooksTest, ElementsOfASequentialAreHookedInPlace) {
  Net net;
  const auto x = torch::randn({2, 4});
  const auto expected = net->layers->forward(x);
  const auto names = net->named_parameters().keys();
  auto handle = register_forward_pre_hook(*net, "layers.0", double_first);
  const auto first = net->layers[0]->as<torch::nn::Linear>();
  const auto last = net->layers[2]->as<torch::nn::Linear>();
  ASSERT_NE(first, nullptr) << "everybody else sees the module itself";
  const auto doubled = last->forward(torch::relu(torch::linear(2 * x, first->weight, first->bias)));
  EXPECT_TRUE(torch::allclose(net->layers->forward(x), doubled));
  EXPECT_EQ(net->named_parameters().keys(), names);
  const auto clone = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->layers->clone());
  EXPECT_TRUE(torch::allclose(clone->forward(x), doubled));
  EXPECT_EQ(clone->named_parameters().keys(), net->layers->named_parameters().keys());
  handle.remove();
  EXPECT_TRUE(torch::equal(net->layers->forward(x), expected));
  EXPECT_TRUE(torch::allclose(clone->forward(x), doubled)) << "a clone has its own hooks";
}

TEST(HooksTest, ElementsOfASequentialRunTheirHooksWhenCalledOneByOne) {
  Net net;
  register_forward_hook(*net, "layers.0", negate_first);
  const auto x = torch::randn({2, 4});
  const auto* const first = net->layers[0]->as<torch::nn::Linear>();
  auto y = x;
  for (auto& layer : *net->layers) y = layer.forward(y);
  EXPECT_TRUE(torch::equal(y, net->layers->forward(x)));
  EXPECT_TRUE(torch::equal(net->layers->begin()->forward(x),
                           -torch::linear(x, first->weight, first->bias)));
}

TEST(HooksTest, ASequentialInAListIsHookedInPlace) {
  torch::nn::ModuleList list(torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::ReLU()));
  auto* const layers = list[0]->as<torch::nn::Sequential>();
  const auto x = torch::randn({2, 3});
  const auto expected = layers->forward(2 * x);
  register_forward_pre_hook(*list, "0", double_first);
  register_forward_hook(*list, "0.1", negate_first);
  EXPECT_TRUE(torch::allclose(layers->forward(x), -expected));
}

TEST(HooksTest, ASequentialHasTheHooksOfItsEnds) {
  Net net;
  const auto x = torch::randn({2, 4});
  const auto expected = net->layers->forward(2 * x);
  register_forward_pre_hook(*net, "layers", double_first);
  register_forward_hook(*net, "layers", negate_first);
  EXPECT_TRUE(torch::allclose(net->layers->forward(x), -expected));
}

TEST(HooksTest, HookedElementsOfListsAndDictsHaveHooksByTheirPaths) {
  torch::nn::ModuleList list(Hooked<torch::nn::Linear>(3, 4));
  torch::nn::ModuleDict dict;
  dict->update({{"fc", Hooked<torch::nn::Linear>(3, 4).ptr()}});
  const auto x = torch::randn({2, 3});
  auto* const in_list = list[0]->as<Hooked<torch::nn::Linear>>();
  auto* const in_dict = dict["fc"]->as<Hooked<torch::nn::Linear>>();
  ASSERT_NE(in_list, nullptr);
  ASSERT_NE(in_dict, nullptr);
  register_forward_hook(*list, "0", negate_first);
  register_forward_hook(*dict, "fc", negate_first);
  EXPECT_TRUE(torch::equal(in_list->forward(x), -torch::linear(x, in_list->weight, in_list->bias)));
  EXPECT_TRUE(torch::equal(in_dict->forward(x), -torch::linear(x, in_dict->weight, in_dict->bias)));
}

TEST(HooksTest, AModuleWithoutAPlaceForHooksIsAnErrorThatSaysWhatToChange) {
  Net net;
  EXPECT_EQ(error_of([&] { register_forward_hook(*net, "plain", negate_first); }),
            "register_forward_hook: module 'plain' (torch::nn::Linear) cannot have hooks, because "
            "libtorch calls its forward directly; declare the member as "
            "tessera::nn::Hooked<torch::nn::Linear> (from tessera/nn/hooked.h), or put it into a "
            "torch::nn::Sequential");
  EXPECT_THAT(error_of([&] { register_forward_hook(*net, "list", negate_first); }),
              HasSubstr("cannot have hooks, because it has no forward; give them to its elements: "
                        "'list.*'"));
  EXPECT_EQ(
      error_of([&] { register_forward_pre_hook(*net, "list.0", double_first); }),
      "register_forward_pre_hook: module 'list.0' (torch::nn::Linear) cannot have hooks, "
      "because a torch::nn::ModuleList hands it out by its own type, and its forward is called "
      "directly; put a tessera::nn::Hooked<torch::nn::Linear> (from tessera/nn/hooked.h) into "
      "the list and call it as one, as<tessera::nn::Hooked<torch::nn::Linear>>(), or make the "
      "list a torch::nn::Sequential, whose elements have hooks");
  torch::nn::ModuleDict dict;
  dict->update({{"fc", torch::nn::Linear(2, 2).ptr()}});
  EXPECT_THAT(error_of([&] { register_forward_hook(*dict, "fc", negate_first); }),
              HasSubstr("because a torch::nn::ModuleDict hands it out by its own type"));
  EXPECT_THAT(error_of([&] { register_forward_pre_hook(*net, "", double_first); }),
              HasSubstr("Net) cannot have hooks, because libtorch calls its forward directly; make "
                        "it a tessera::nn::Hooked<"));
  torch::nn::Sequential empty;
  EXPECT_THAT(error_of([&] { register_forward_pre_hook(*empty, "", double_first); }),
              HasSubstr("because it is empty; add its elements first"));
}

TEST(HooksTest, AnUnknownPathIsAnErrorWithNearNames) {
  Net net;
  EXPECT_THAT(error_of([&] { register_forward_hook(*net, "plan", negate_first); }),
              HasSubstr("has no module 'plan'; near ones are 'plain'"));
}

TEST(HooksTest, TheRootCanBeHookedToo) {
  Hooked<Net> net;
  const auto x = torch::randn({2, 3});
  const auto expected = net(x);
  register_forward_hook(*net, "", negate_first);
  EXPECT_TRUE(torch::equal(net(x), -expected));
}

}  // namespace
}  // namespace tessera::nn
