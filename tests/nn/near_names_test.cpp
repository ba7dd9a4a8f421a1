#include "tessera/nn/near_names.h"

#include <gmock/gmock.h>

namespace tessera::nn::detail {
namespace {

TEST(NearNamesTest, DistanceCountsInsertedRemovedAndReplacedCharacters) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("", "ab"), 2U);
  EXPECT_EQ(edit_distance("weight", "wieght"), 2U);
  EXPECT_EQ(edit_distance("fc1", "fc12"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(NearNamesTest, TheNearestComesFirst) {
  const std::vector<std::string> names = {"layers.0.fc1", "layers.0.fc2", "embedding", "head.fc3"};
  EXPECT_THAT(near_names("layers.0.fc3", names),
              testing::ElementsAre("layers.0.fc1", "layers.0.fc2", "head.fc3"));
  EXPECT_THAT(near_names("norm", names), testing::IsEmpty());
}

TEST(NearNamesTest, TheTextShowsNearNamesOrTheFirstOnes) {
  EXPECT_EQ(near_names_text("fcl", {"fc1", "head"}), "near ones are 'fc1'");
  EXPECT_EQ(near_names_text("norm", {"fc1", "head"}), "there are 'fc1', 'head'");
  EXPECT_EQ(near_names_text("norm", {}), "there are none at all");
}

}  // namespace
}  // namespace tessera::nn::detail
