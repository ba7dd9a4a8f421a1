#include <gtest/gtest.h>

#include "nn/training/gpt_case.h"
#include "tessera/comm/world.h"

namespace tessera {
namespace {

class GptTest : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(GptTest, TrainsToTheLossesOfOneRankInFloat) {
  run_ranks(GetParam(), [](World& world) { test::check_gpt(world, torch::kFloat, 20); });
}

TEST_P(GptTest, TrainsToTheLossesOfOneRankInDouble) {
  run_ranks(GetParam(), [](World& world) { test::check_gpt(world, torch::kDouble, 20); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GptTest, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace tessera
