#include "tessera/comm/exchange_boxes.h"

#include <atomic>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include "support/rank_test.h"
#include "tessera/comm/comm_error.h"

namespace tessera::test {
namespace {

/// Brings a tensor of four elements from one rank to another, and returns what the calling one then has.
std::vector<at::Tensor> move_all(const Group& group, std::int64_t from, std::int64_t to) {
  const BoxMap before = BoxMap::on_one_rank({4}, from);
  const BoxMap after = BoxMap::on_one_rank({4}, to);
  const std::int64_t rank = group.world().rank();
  std::vector<at::Tensor> held;
  if (rank == from) held.push_back(at::full({4}, 7, at::kFloat));
  auto received = detail::new_pieces(after, rank, at::kFloat);
  detail::exchange_boxes({before, after, group, "a move"}, received, held, at::kFloat);
  return received;
}

TEST(ExchangeBoxesTest, IsAllThatItsRankDoes) {
  std::latch refused(1);
  run_ranks(
      2,
      [&](World& world) {
        const Group group = world.group();
        if (world.rank() == 1) {
          refused.wait();
          EXPECT_EQ(move_all(group, 0, 1).at(0).sum().item<double>(), 28);
          return;
        }
        // The other rank comes when one of the threads was refused, so the other one is in it until then.
        std::atomic<int> refusals = 0;
        const auto call = [&, world] {
          try {
            EXPECT_TRUE(move_all(group, 0, 1).empty());
          } catch (const InvalidArgument& error) {
            EXPECT_THAT(
                error.what(),
                testing::HasSubstr("a move: called on rank 0 while another thread of that rank "
                                   "is communicating"));
            ++refusals;
            refused.count_down();
          }
        };
        std::thread other(call);
        call();
        other.join();
        EXPECT_EQ(refusals, 1);
      },
      test_options());
}

}  // namespace
}  // namespace tessera::test
