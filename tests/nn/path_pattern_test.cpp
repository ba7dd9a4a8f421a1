#include "tessera/nn/path_pattern.h"

#include <gmock/gmock.h>

#include "base/throws_invalid_argument.h"
#include "tessera/base/concat.h"

namespace tessera::nn::detail {
namespace {

TEST(PathPatternTest, PathsAreThemselves) {
  EXPECT_TRUE(matches("layers.0.fc1", "layers.0.fc1"));
  EXPECT_FALSE(matches("layers.0.fc1", "layers.0.fc2"));
  EXPECT_FALSE(matches("layers.0", "layers.0.fc1"));
  EXPECT_FALSE(matches("layers.0.fc1", "layers.0"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("", "fc1"));
  EXPECT_FALSE(matches("fc1", ""));
}

TEST(PathPatternTest, StarsStayInTheirPart) {
  EXPECT_TRUE(matches("layers.*.fc1", "layers.12.fc1"));
  EXPECT_FALSE(matches("layers.*.fc1", "layers.1.2.fc1"));
  EXPECT_TRUE(matches("*", "fc1"));
  EXPECT_FALSE(matches("*", "layers.fc1"));
  EXPECT_TRUE(matches("l*s.f*1", "layers.fc1"));
  EXPECT_TRUE(matches("fc*", "fc"));
  EXPECT_FALSE(matches("*", ""));
}

TEST(PathPatternTest, QuestionMarksAndSetsAreOneCharacter) {
  EXPECT_TRUE(matches("fc?", "fc1"));
  EXPECT_FALSE(matches("fc?", "fc12"));
  EXPECT_FALSE(matches("fc?", "fc"));
  EXPECT_TRUE(matches("fc[13]", "fc3"));
  EXPECT_FALSE(matches("fc[13]", "fc2"));
  EXPECT_TRUE(matches("layers.[0-2].fc", "layers.2.fc"));
  EXPECT_FALSE(matches("layers.[0-2].fc", "layers.3.fc"));
}

TEST(PathPatternTest, SetsMustBeClosed) {
  check_pattern("f", "layers.[0-2].fc[13]*");
  check_pattern("f", "");
  for (const char* pattern : {"fc[1", "layers.fc[1.fc]", "[ab].[", "*.[1-"}) {
    EXPECT_FALSE(matches(pattern, "fc1"));
    EXPECT_THAT([=] { check_pattern("parallelize_module", pattern); },
                test::throws_invalid_argument(
                    concat("parallelize_module: pattern '", pattern,
                           "' opens a set of characters with '[' and does not close it; add ']'")));
  }
}

TEST(PathPatternTest, TwoStarsAreAnyNumberOfParts) {
  EXPECT_TRUE(matches("**.fc1", "fc1"));
  EXPECT_TRUE(matches("**.fc1", "layers.0.fc1"));
  EXPECT_FALSE(matches("**.fc1", "layers.0.fc2"));
  EXPECT_TRUE(matches("layers.**", "layers.0.fc1"));
  EXPECT_FALSE(matches("layers.**", "heads.0"));
  EXPECT_TRUE(matches("a.**.z", "a.b.c.z"));
  EXPECT_TRUE(matches("a.**.z", "a.z"));
  EXPECT_TRUE(matches("**", ""));
}

}  // namespace
}  // namespace tessera::nn::detail
