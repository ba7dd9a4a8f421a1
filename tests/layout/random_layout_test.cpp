// The random layouts of the tests are what they promise: repeatable, valid and varied.

#include "support/random_layout.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/base/concat.h"

namespace tessera::test {
namespace {

const RecipeOptions& any_recipe() {
  static const RecipeOptions options{
      .mesh = {.max_ranks = 12, .rank_maps = true},
      .shape = {.max_numel = 120},
      .placement = {.partial_ops = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max}}};
  return options;
}

TEST(RandomLayoutTest, ASeedGivesTheSameLayoutOnEveryMachine) {
  Random random(3);
  EXPECT_EQ(
      concat(random_recipe(random, any_recipe())),
      "[4,4,5,1][P(sum),SS(0,2),P(avg),R] on [m0=4, m1=1, m2=1, m3=3]@{12,1,10,11,8,3,6,9,5,2,4,7} "
      "in shard order (0, 1, 2, 3)");
}

TEST(RandomLayoutTest, IntegersReachBothEnds) {
  Random random(1);
  std::map<std::int64_t, int> seen;
  for (int i = 0; i < 1000; ++i) ++seen[random.between(-2, 2)];
  EXPECT_EQ(seen.begin()->first, -2);
  EXPECT_EQ(seen.rbegin()->first, 2);
  for (const auto& [value, times] : seen) EXPECT_GT(times, 150) << value;
}

TEST(RandomLayoutTest, SizesStayWithinTheOptions) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const Recipe recipe = random_recipe(random, any_recipe());
    ASSERT_LE(recipe.mesh.num_ranks(), 12);
    ASSERT_GE(recipe.mesh.ndim(), 1);
    ASSERT_LE(recipe.mesh.ndim(), 4);
    ASSERT_LE(recipe.shape.size(), 4U);
    ASSERT_LE(recipe.layout().numel(), 120);
  }
}

TEST(RandomLayoutTest, WithoutOpsAndFactorsThereIsNoPartialAndNoStridedShard) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    for (const auto& placement : random_placements(random, 4, 2, {.max_split_factor = 0})) {
      ASSERT_TRUE(is_replicate(placement) || std::holds_alternative<Shard>(placement));
    }
  }
}

/// What is worth testing in a layout, by name.
std::vector<std::string> features(const Layout& layout) {
  std::vector<std::string> found;
  const auto add = [&](bool present, const char* name) {
    if (present) found.emplace_back(name);
  };
  bool nested = false;
  bool nested_strided = false;
  for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
    const auto cuts = layout.splits(dim);
    const auto strided = [](const Split& cut) { return cut.pieces > 1; };
    nested |= cuts.size() > 1;
    nested_strided |= cuts.size() > 1 && std::any_of(cuts.begin(), cuts.end(), strided);
  }
  bool empty_shard = false;
  bool uneven = false;
  for (std::int64_t position = 0; position < layout.mesh().num_ranks(); ++position) {
    empty_shard |= layout.numel() > 0 && layout.local_numel(position) == 0;
    uneven |= layout.local_numel(position) != layout.local_numel(0);
  }
  add(nested, "nested");
  add(nested_strided, "nested strided");
  add(empty_shard, "empty shard");
  add(uneven, "uneven");
  add(layout.ndim() == 0, "scalar");
  add(layout.ndim() > 0 && layout.numel() == 0, "empty tensor");
  add(layout.has_partial(), "partial");
  add(layout.to_string().find('{') != std::string::npos, "shard order or scattered ranks");
  add(layout.mesh().max_rank() >= layout.mesh().num_ranks(), "ranks with holes");
  return found;
}

TEST(RandomLayoutTest, EverythingThatIsWorthTestingIsCommon) {
  std::map<std::string, int> times;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    Random random(seed);
    for (const auto& feature : features(random_layout(random, any_recipe()))) ++times[feature];
  }
  EXPECT_EQ(times.size(), 9U);
  for (const auto& [feature, count] : times) EXPECT_GT(count, 250) << feature;
}

}  // namespace
}  // namespace tessera::test
