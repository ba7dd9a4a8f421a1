#include "tessera/plan/cost_model.h"

#include <limits>
#include <set>

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr CostModel kPrices = {
    .launch_ps = 1'000, .message_ps = 100, .byte_ps = 10, .packed_byte_ps = 1};

TEST(CostModelTest, AddsLaunchMessagesBytesAndPacking) {
  EXPECT_EQ(kPrices.cost_ps({.received_bytes = 7, .packed_bytes = 5, .messages = 3}),
            1'000 + 3 * 100 + 7 * 10 + 5);
}

TEST(CostModelTest, OnlyTheLargerDirectionCounts) {
  EXPECT_EQ(kPrices.cost_ps({.received_bytes = 7, .sent_bytes = 4}), 1'000 + 70);
  EXPECT_EQ(kPrices.cost_ps({.received_bytes = 4, .sent_bytes = 7}), 1'000 + 70);
  EXPECT_EQ(kPrices.cost_ps({.received_bytes = 7, .sent_bytes = 7}), 1'000 + 70);
}

TEST(CostModelTest, StartingAStepCostsTheLaunch) { EXPECT_EQ(kPrices.cost_ps({}), 1'000); }

TEST(CostModelTest, TheDefaultsAreAMicrosecondPerMessageAndFiveGigabytesPerSecond) {
  EXPECT_EQ(CostModel{}.cost_ps({.messages = 1}) - CostModel{}.cost_ps({}), 1'000'000);
  EXPECT_EQ(CostModel{}.cost_ps({.received_bytes = 5'000'000'000}) - CostModel{}.cost_ps({}),
            1'000'000'000'000);
}

TEST(CostModelTest, SaturatesInEveryTerm) {
  EXPECT_EQ(kPrices.cost_ps({.received_bytes = kMost}), kMost);
  EXPECT_EQ(kPrices.cost_ps({.sent_bytes = kMost}), kMost);
  EXPECT_EQ(kPrices.cost_ps({.packed_bytes = kMost}), kMost);
  EXPECT_EQ(kPrices.cost_ps({.messages = kMost}), kMost);
  EXPECT_EQ(CostModel{.launch_ps = kMost}.cost_ps({.messages = 1}), kMost);
  EXPECT_EQ(kPrices.cost_ps({kMost, kMost, kMost, kMost}), kMost);
}

TEST(CostModelTest, IsExactJustBelowSaturation) {
  const CostModel bytes_only = {.launch_ps = 0, .message_ps = 0, .byte_ps = 2, .packed_byte_ps = 1};
  EXPECT_EQ(bytes_only.cost_ps({.received_bytes = kMost / 2}), kMost - 1);
  EXPECT_EQ(bytes_only.cost_ps({.received_bytes = kMost / 2, .packed_bytes = 1}), kMost);
  EXPECT_EQ(bytes_only.cost_ps({.received_bytes = kMost / 2 + 1}), kMost);
}

TEST(CostModelTest, FreeThingsCostNothingHoweverMany) {
  const CostModel free = {0, 0, 0, 0};
  EXPECT_EQ(free.cost_ps({kMost, kMost, kMost, kMost}), 0);
}

TEST(CostModelTest, EveryPriceCountsInEqualityAndHash) {
  std::set<std::size_t> hashes = {CostModel{}.hash()};
  for (auto price : {&CostModel::launch_ps, &CostModel::message_ps, &CostModel::byte_ps,
                     &CostModel::packed_byte_ps}) {
    CostModel changed;
    changed.*price += 1;
    EXPECT_NE(changed, CostModel{});
    EXPECT_TRUE(hashes.insert(changed.hash()).second);
  }
  EXPECT_EQ(CostModel{}.hash(), CostModel{}.hash());
}

}  // namespace
}  // namespace tessera
