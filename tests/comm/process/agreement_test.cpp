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

Claims claims_of(std::vector<Claim> all) {
  Claims claims;
  for (const auto& each : all) claims.add(each);
  return claims;
}

TEST(AgreementTest, ClaimsAreComparedAndDescribed) {
  const MeshShape mesh({2});
  const Claim taken{0, at::kFloat, Layout(mesh, {Shard(0)}, {4, 3})};
  const Claim other{0, at::kFloat, Layout(mesh, {Shard(0)}, {6, 3})};
  const Claim asked{1, at::kFloat, std::nullopt};
  const auto record = [](const Claims& claims) {
    return make_record({"barrier", ""}, 0, 0, claims);
  };
  EXPECT_EQ(record(claims_of({taken, asked})), record(claims_of({taken, asked})));
  EXPECT_EQ(unpack(pack(record(claims_of({taken})), {})), record(claims_of({taken})));
  EXPECT_NE(record(claims_of({taken})), record(claims_of({other})));
  EXPECT_NE(record(claims_of({taken})), record(claims_of({})));
  EXPECT_NE(record(claims_of({taken, asked})), record(claims_of({asked, taken})));
  const auto side = [&](std::int64_t rank, const Claims& claims) {
    return unpack_side(rank, pack_call({"barrier", ""}, claims), record(claims));
  };
  EXPECT_EQ(describe_difference(side(0, claims_of({taken, asked})), side(3, claims_of({}))),
            concat("the ranks do not agree: rank 0 calls barrier(), having taken output 0 of "
                   "local_map for float32[4,3][S(0)] on [2], asked for the shape of output 1 of "
                   "local_map; rank 3 calls barrier()",
                   advice_on_claims()));
}

TEST(AgreementTest, ClaimsAreTakenOnce) {
  Claims claims;
  EXPECT_TRUE(claims.empty());
  EXPECT_EQ(claims.hash(), 0U);
  // The first ones are kept as a hash only, in which their order still counts.
  for (std::int64_t i = 0; i < 20; ++i) claims.add({i, at::kLong, std::nullopt});
  Claims others;
  for (const std::int64_t i : {1, 0}) others.add({i, at::kLong, std::nullopt});
  for (std::int64_t i = 2; i < 20; ++i) others.add({i, at::kLong, std::nullopt});
  EXPECT_NE(claims.hash(), others.hash());
  EXPECT_NE(claims, others);
  const Claims taken = claims.take();
  EXPECT_FALSE(taken.empty());
  EXPECT_TRUE(claims.empty());
  EXPECT_EQ(claims, Claims());
  for (std::int64_t i = 0; i < 20; ++i) claims.add({i, at::kLong, std::nullopt});
  EXPECT_EQ(claims, taken);
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
