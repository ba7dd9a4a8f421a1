#include "tessera/base/check.h"

#include <string>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"

namespace tessera {
namespace {

using test::throws_invalid_argument;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

TEST(CheckTest, AFalseConditionThrowsInvalidArgumentWithThePartsJoined) {
  EXPECT_THAT([] { TESSERA_CHECK(1 > 2, "split: dim ", 3, " given; use ", 'x', " or ", 0.5); },
              throws_invalid_argument("split: dim 3 given; use x or 0.5"));
}

TEST(CheckTest, ATrueConditionDoesNotEvaluateTheMessage) {
  int evaluated = 0;
  TESSERA_CHECK(2 > 1, "evaluated ", ++evaluated);
  TESSERA_INTERNAL_CHECK(2 > 1, "evaluated ", ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST(CheckTest, TheConditionIsEvaluatedOnce) {
  int evaluated = 0;
  TESSERA_CHECK(++evaluated == 1, "first");
  TESSERA_INTERNAL_CHECK(++evaluated == 2, "second");
  EXPECT_EQ(evaluated, 2);
}

TEST(CheckTest, ChecksAreSingleStatements) {
  bool reached_else = false;
  if (false)
    TESSERA_CHECK(false, "not reached");
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST(InternalCheckTest, TheTextNamesTheConditionThePlaceAndWhatToDo) {
  const int line = __LINE__ + 1;
  const auto fail = [] { TESSERA_INTERNAL_CHECK(1 + 1 == 3, "plan: step ", 7, " is lost"); };
  EXPECT_THAT(fail, ThrowsMessage<InternalError>(
                        StrEq(concat("plan: step 7 is lost (1 + 1 == 3 does not hold at ", __FILE__,
                                     ":", line, "; this is a bug in Tessera, please report it)"))));
}

TEST(ErrorTest, EveryErrorIsATesseraErrorAndARuntimeError) {
  static_assert(std::is_base_of_v<Error, InvalidArgument>);
  static_assert(std::is_base_of_v<Error, InternalError>);
  static_assert(std::is_base_of_v<std::runtime_error, Error>);
  EXPECT_THROW(TESSERA_CHECK(false, "wrong call"), Error);
  EXPECT_THROW(TESSERA_INTERNAL_CHECK(false, "our bug"), std::runtime_error);
}

TEST(ErrorTest, AWrongCallIsNotABugOfOurs) {
  static_assert(!std::is_base_of_v<InternalError, InvalidArgument>);
  static_assert(!std::is_base_of_v<InvalidArgument, InternalError>);
  EXPECT_THROW(TESSERA_CHECK(false, "wrong call"), InvalidArgument);
  EXPECT_THROW(TESSERA_INTERNAL_CHECK(false, "our bug"), InternalError);
}

}  // namespace
}  // namespace tessera
