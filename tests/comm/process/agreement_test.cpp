#include "tessera/comm/c10d/agreement.h"

#include <gtest/gtest.h>

#include "tessera/base/concat.h"

namespace tessera::detail {
namespace {

TEST(AgreementTest, RecordsTellApartWhatMustAgree) {
  const CheckRecord record = make_record({"all_reduce", "float32[4] sum"}, 3, 2);
  EXPECT_EQ(record, make_record({"all_reduce", "float32[4] sum"}, 3, 2));
  EXPECT_NE(record, make_record({"all_reduce", "float32[4] max"}, 3, 2));
  EXPECT_NE(record, make_record({"broadcast", "float32[4] sum"}, 3, 2));
  EXPECT_NE(record, make_record({"all_reduce", "float32[4] sum"}, 4, 2));
  EXPECT_NE(record, make_record({"all_reduce", "float32[4] sum"}, 3, 1));
  // The border between the operation and its arguments counts.
  EXPECT_NE(make_record({"ab", "c"}, 0, 0), make_record({"a", "bc"}, 0, 0));
}

TEST(AgreementTest, RecordsSurvivePackingWithTheFirstNumbers) {
  const CheckRecord record = make_record({"all_to_all_single", "x"}, 1, 20);
  std::vector<std::int64_t> numbers(20);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i) - 7;
  const auto words = pack(record, numbers);
  EXPECT_EQ(unpack(words), record);
  for (std::size_t i = 0; i < CheckRecord::kInline; ++i) {
    EXPECT_EQ(words[CheckRecord::kSize - CheckRecord::kInline + i], numbers[i]);
  }
}

TEST(AgreementTest, TheFirstMemberThatDiffersIsFound) {
  const CheckRecord usual = make_record({"a", "x"}, 0, 0);
  const CheckRecord odd = make_record({"a", "y"}, 0, 0);
  EXPECT_EQ(find_difference(std::vector{usual, usual, usual}), std::nullopt);
  EXPECT_EQ(find_difference(std::vector{usual, usual, odd}), 2U);
  EXPECT_EQ(find_difference(std::vector{odd, usual, usual}), 1U);
  EXPECT_EQ(find_difference(std::vector{usual}), std::nullopt);
}

TEST(AgreementTest, CallsSurvivePackingUnlessTheyAreVeryLong) {
  EXPECT_EQ(unpack_call(pack_call({"all_reduce", "float32[4] sum"})), "all_reduce(float32[4] sum)");
  EXPECT_EQ(unpack_call(pack_call({"", ""})), "()");
  const std::string cut = unpack_call(pack_call({"op", std::string(5000, 'x')}));
  EXPECT_EQ(cut.size(), CallText::kSize * 8 - 1);
  EXPECT_EQ(cut.substr(cut.size() - 5), "x ...");
}

TEST(AgreementTest, DifferencesAreDescribedByWhatDiffers) {
  const CheckRecord record = make_record({"all_reduce", "float32[4] sum"}, 5, 0);
  CheckRecord later = record;
  later.sequence = 7;
  CheckRecord longer = record;
  longer.length = 3;
  const std::string call = "all_reduce(float32[4] sum)";
  EXPECT_EQ(
      describe_difference({0, call, record}, {2, "barrier()", later}),
      "the ranks do not agree: rank 0 calls all_reduce(float32[4] sum), rank 2 calls barrier()");
  EXPECT_EQ(describe_difference({0, call, record}, {2, call, later}),
            "the ranks do not agree: rank 0 calls all_reduce(float32[4] sum) as operation 5 of the "
            "group, rank 2 as operation 7");
  EXPECT_EQ(
      describe_difference({0, call, record}, {2, call, longer}),
      "the ranks do not agree: rank 0 calls all_reduce(float32[4] sum) with 0 number(s), rank "
      "2 with 3");
}

}  // namespace
}  // namespace tessera::detail
