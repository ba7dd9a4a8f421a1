#include "tessera/tensor/tree.h"

#include <list>
#include <set>
#include <string>
#include <unordered_map>

#include <gmock/gmock.h>

#include <torch/torch.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

struct Batch {
  at::Tensor tokens;
  std::vector<at::Tensor> masks;
  std::int64_t step = 0;
};

struct Nested {
  Batch batch;
  std::string name;
};

struct Opaque {
  at::Tensor hidden;
};

}  // namespace

template <>
struct TreeFields<Batch> {
  static auto of(auto& batch) { return std::tie(batch.tokens, batch.masks, batch.step); }
};
template <>
struct TreeFields<Nested> {
  static auto of(auto& nested) { return std::tie(nested.batch, nested.name); }
};

namespace {

using testing::ElementsAre;

at::Tensor number(double value) { return torch::full({1}, value); }

template <typename Tree>
std::vector<LeafKind> kinds_of(const Tree& tree) {
  std::vector<LeafKind> kinds;
  for (const auto& leaf : leaves_of(tree)) kinds.push_back(leaf.kind);
  return kinds;
}

template <typename Tree>
std::vector<double> values_of(const Tree& tree) {
  std::vector<double> values;
  for (const at::Tensor& tensor : tensors_of(tree)) values.push_back(tensor.item<double>());
  return values;
}

TEST(TreeTest, SingleValuesAreOneLeaf) {
  EXPECT_THAT(kinds_of(number(1)), ElementsAre(LeafKind::tensor));
  EXPECT_THAT(kinds_of(at::Tensor()), ElementsAre(LeafKind::none));
  EXPECT_THAT(kinds_of(true), ElementsAre(LeafKind::boolean));
  EXPECT_THAT(kinds_of(3), ElementsAre(LeafKind::number));
  EXPECT_THAT(kinds_of(2.5F), ElementsAre(LeafKind::number));
  EXPECT_THAT(kinds_of(at::Scalar(2)), ElementsAre(LeafKind::number));
  EXPECT_THAT(kinds_of(std::string("a")), ElementsAre(LeafKind::string));
  EXPECT_THAT(kinds_of("literal"), ElementsAre(LeafKind::string));
  EXPECT_THAT(kinds_of(std::set<int>{1, 2}), ElementsAre(LeafKind::other));
  EXPECT_THAT(kinds_of(Opaque{}), ElementsAre(LeafKind::other));
  const int value = 1;
  EXPECT_THAT(kinds_of(&value), ElementsAre(LeafKind::other));
}

TEST(TreeTest, OptionalsAreWhatTheyHold) {
  EXPECT_THAT(kinds_of(std::optional<at::Tensor>(number(1))), ElementsAre(LeafKind::tensor));
  EXPECT_THAT(kinds_of(std::optional<at::Tensor>()), ElementsAre(LeafKind::none));
  EXPECT_THAT(kinds_of(std::optional<std::vector<at::Tensor>>({number(1), number(2)})),
              ElementsAre(LeafKind::tensor, LeafKind::tensor));
  EXPECT_THAT(kinds_of(std::optional<std::vector<at::Tensor>>()), ElementsAre(LeafKind::none));
}

TEST(TreeTest, ContainersGiveTheirElementsInOrder) {
  EXPECT_THAT(kinds_of(std::vector<at::Tensor>{}), ElementsAre());
  EXPECT_THAT(values_of(std::vector<at::Tensor>{number(1), number(2)}), ElementsAre(1, 2));
  EXPECT_THAT(values_of(std::array<at::Tensor, 2>{number(3), number(4)}), ElementsAre(3, 4));
  EXPECT_THAT(kinds_of(std::array<int, 0>{}), ElementsAre());
  EXPECT_THAT(kinds_of(std::vector<bool>{true, false}),
              ElementsAre(LeafKind::boolean, LeafKind::boolean));
  EXPECT_THAT(kinds_of(std::vector<int>{1, 2}), ElementsAre(LeafKind::number, LeafKind::number));
  EXPECT_THAT(values_of(std::pair(number(1), number(2))), ElementsAre(1, 2));
  EXPECT_THAT(kinds_of(std::tuple(number(1), 2, "three", true)),
              ElementsAre(LeafKind::tensor, LeafKind::number, LeafKind::string, LeafKind::boolean));
  EXPECT_THAT(kinds_of(std::tuple<>()), ElementsAre());
}

TEST(TreeTest, MapsGoByAscendingKey) {
  std::map<std::string, at::Tensor> map;
  map.emplace("c", number(3));
  map.emplace("a", number(1));
  map.emplace("b", number(2));
  EXPECT_THAT(values_of(map), ElementsAre(1, 2, 3));
  const std::map<int, std::vector<at::Tensor>, std::greater<>> falling{{1, {number(1)}},
                                                                       {2, {number(2), number(3)}}};
  EXPECT_THAT(values_of(falling), ElementsAre(2, 3, 1));
}

TEST(TreeTest, StructsGiveTheirFields) {
  const Batch batch{number(1), {number(2), number(3)}, 7};
  EXPECT_THAT(values_of(batch), ElementsAre(1, 2, 3));
  EXPECT_THAT(kinds_of(Nested{batch, "x"}),
              ElementsAre(LeafKind::tensor, LeafKind::tensor, LeafKind::tensor, LeafKind::number,
                          LeafKind::string));
}

TEST(TreeTest, NestsToAnyDepth) {
  using Deep = std::tuple<std::map<std::string, std::pair<at::Tensor, std::optional<Batch>>>, int,
                          std::vector<std::array<std::optional<at::Tensor>, 2>>>;
  Deep deep;
  std::get<0>(deep)["b"] = {number(3), std::nullopt};
  std::get<0>(deep)["a"] = {number(1), Batch{number(2), {}, 0}};
  std::get<2>(deep) = {{number(4), std::nullopt}, {std::nullopt, number(5)}};
  EXPECT_THAT(values_of(deep), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(kinds_of(deep),
              ElementsAre(LeafKind::tensor, LeafKind::tensor, LeafKind::number, LeafKind::tensor,
                          LeafKind::none, LeafKind::number, LeafKind::tensor, LeafKind::none,
                          LeafKind::none, LeafKind::tensor));
}

TEST(TreeTest, RebuildPutsTensorsInTheSamePlaces) {
  const Nested tree{{number(1), {at::Tensor(), number(2)}, 7}, "name"};
  const std::vector<at::Tensor> others{number(10), number(20)};
  const Nested rebuilt = rebuild(tree, others);
  EXPECT_TRUE(rebuilt.batch.tokens.is_same(others[0]));
  EXPECT_FALSE(rebuilt.batch.masks[0].defined());
  EXPECT_TRUE(rebuilt.batch.masks[1].is_same(others[1]));
  EXPECT_EQ(rebuilt.batch.step, 7);
  EXPECT_EQ(rebuilt.name, "name");
  EXPECT_THAT(values_of(tree), ElementsAre(1, 2));
  EXPECT_THAT(values_of(rebuild(tree, tensors_of(tree))), ElementsAre(1, 2));
}

TEST(TreeTest, RebuildNeedsOneTensorForEach) {
  const std::vector<at::Tensor> tree{number(1), number(2)};
  for (const std::size_t count : {1U, 3U}) {
    try {
      (void)rebuild(tree, std::vector<at::Tensor>(count, number(0)));
      ADD_FAILURE() << "did not throw";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("tensor(s) given for a tree of 2"));
    }
  }
}

TEST(TreeTest, KnowsWhichTypesHoldTensors) {
  EXPECT_TRUE((detail::holds_tensors<std::pair<int, std::optional<at::Tensor>>>()));
  EXPECT_TRUE((detail::holds_tensors<std::map<int, Nested>>()));
  EXPECT_FALSE((detail::holds_tensors<std::tuple<int, std::vector<std::string>>>()));
  EXPECT_FALSE(detail::holds_tensors<Opaque>());
}

TEST(TreeTest, RefusesContainersWithoutOrderOrOwnership) {
  EXPECT_TRUE((detail::is_refused<std::unordered_map<std::string, at::Tensor>>()));
  EXPECT_TRUE(detail::is_refused<at::TensorList>());
  EXPECT_TRUE(detail::is_refused<std::list<at::Tensor>>());
  EXPECT_TRUE((detail::is_refused<std::span<at::Tensor>>()));
  EXPECT_FALSE(detail::is_refused<std::list<int>>());
  EXPECT_FALSE(detail::is_refused<std::string>());
}

}  // namespace
}  // namespace tessera
