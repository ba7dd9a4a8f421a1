#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "support/rank_test.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

detail::Transport& transport(const Group& group) { return detail::connect(group); }

/// Sums over a group, announced as `arguments`.
void sum(const Group& group, const at::Tensor& data, const std::string& arguments = "f32[4] sum") {
  transport(group).check({"all_reduce", arguments});
  transport(group).all_reduce(data, ReduceOp::sum)->wait();
}

void sum_once(const World& world) { sum(world.group(), at::ones({4})); }

/// Runs `fn` on every rank and returns what each rank's exception says; empty where none came.
std::vector<std::string> failures_of(std::int64_t ranks, const std::function<void(World&)>& fn,
                                     WorldOptions options = test_options()) {
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  try {
    run_ranks(
        ranks,
        [&](World& world) {
          try {
            fn(world);
          } catch (const std::exception& error) {
            failures[static_cast<std::size_t>(world.rank())] = error.what();
            throw;
          }
        },
        options);
  } catch (const Error&) {
  }
  return failures;
}

TEST(RunRanksTest, EveryRankRunsOnceAndKnowsItself) {
  for (const std::int64_t ranks : {1, 2, 3, 4, 64}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](World& world) {
      ++runs[static_cast<std::size_t>(world.rank())];
      EXPECT_EQ(world.size(), ranks);
      EXPECT_EQ(World::current().rank(), world.rank());
      EXPECT_STREQ(world.engine(), "threads");
    });
    for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
  }
  EXPECT_FALSE(World::is_running());
}

TEST(RunRanksTest, SixtyFourRanksDoNotStarve) {
  run_ranks(
      64,
      [](World& world) {
        for (int i = 0; i < 50; ++i) {
          const at::Tensor data = at::full({4}, static_cast<double>(world.rank()));
          sum(world.group(), data);
          ASSERT_EQ(data[0].item<double>(), 64 * 63 / 2);
        }
      },
      test_options());
}

TEST(RunRanksTest, NoRanksAreRefused) {
  EXPECT_EQ(failure_of(0, [](World&) {}), "run_ranks: 0 ranks given; there must be at least 1");
}

TEST(RunRanksTest, OutsideThereIsNoWorld) {
  EXPECT_THAT([] { (void)World::current(); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  "World::current: the calling thread is no rank; call it inside of the function "
                  "that launch or run_ranks runs"));
}

TEST(ThreadFaultTest, TheExceptionOfARankEndsTheOthersAndNamesIt) {
  const auto begin = Clock::now();
  const auto failures = failures_of(4, [](World& world) {
    if (world.rank() == 2) throw std::runtime_error("disk full");
    sum_once(world);
  });
  EXPECT_EQ(failures[2], "disk full");
  for (const std::size_t rank : {0, 1, 3}) {
    EXPECT_THAT(failures[rank],
                AllOf(HasSubstr("all_reduce on group world, rank " + std::to_string(rank)),
                      HasSubstr("rank 2 failed: disk full")));
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5)) << "they waited for the timeout";
}

TEST(ThreadFaultTest, TheFirstExceptionIsRethrownWithItsRank) {
  EXPECT_EQ(failure_of(3,
                       [](World& world) {
                         if (world.rank() == 1) throw std::runtime_error("disk full");
                         sum_once(world);
                       }),
            "rank 1: disk full");
  EXPECT_THROW(run_ranks(2, [](World&) { throw InvalidArgument("no"); }), InvalidArgument);
}

TEST(ThreadFaultTest, ARankThatReturnsEarlyIsNamed) {
  const auto failures = failures_of(3, [](World& world) {
    if (world.rank() != 0) sum_once(world);
  });
  EXPECT_EQ(failures[0], "");
  for (const std::size_t rank : {1, 2}) {
    EXPECT_THAT(failures[rank], HasSubstr("rank 0 has returned without calling it"));
  }
}

TEST(ThreadFaultTest, ADeadlockIsFoundAtOnce) {
  const auto begin = Clock::now();
  const auto failures = failures_of(3, [](World& world) {
    // A ring of pairs, each rank with the next one first.
    const std::int64_t next = (world.rank() + 1) % 3;
    const Group pair = world.group(world.rank() < next ? std::vector{world.rank(), next}
                                                       : std::vector{next, world.rank()});
    sum(pair, at::ones({4}));
  });
  for (const auto& failure : failures) {
    EXPECT_THAT(failure, AllOf(HasSubstr("deadlock, nobody can go on"),
                               HasSubstr("rank 0 waits in all_reduce(f32[4] sum) on group {0,1}"),
                               HasSubstr("rank 1 waits in all_reduce(f32[4] sum) on group {1,2}"),
                               HasSubstr("rank 2 waits in all_reduce(f32[4] sum) on group {0,2}")));
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5)) << "they waited for the timeout";
}

TEST(ThreadFaultTest, ARankThatNeverComesIsNamedWhenTheTimeIsUp) {
  std::atomic<bool> stop = false;
  const auto failures = failures_of(3,
                                    [&](World& world) {
                                      if (world.rank() == 1) {
                                        while (!stop) std::this_thread::yield();
                                        return;
                                      }
                                      try {
                                        sum_once(world);
                                      } catch (const CommError& error) {
                                        EXPECT_GE(error.elapsed(), std::chrono::milliseconds(0));
                                        EXPECT_EQ(error.operation(), "all_reduce");
                                        EXPECT_EQ(error.group(), "world");
                                        stop = true;
                                        throw;
                                      }
                                    },
                                    {.timeout = std::chrono::milliseconds(200)});
  EXPECT_THAT(failures[0], HasSubstr("rank 1 did not call it in time"));
  EXPECT_THAT(failures[2], HasSubstr("rank 1 did not call it in time"));
}

TEST(ThreadFaultTest, AFailedGroupStaysFailedAndOthersGoOn) {
  run_ranks(
      2,
      [](World& world) {
        const Group pair = world.group({1, 0}, "pair");
        const std::string arguments = world.rank() == 0 ? "f32[4] sum" : "f32[5] sum";
        EXPECT_THROW(sum(pair, at::ones({4}), arguments), CommError);
        try {
          sum(pair, at::ones({4}));
          ADD_FAILURE() << "the failed group was used again";
        } catch (const CommError& error) {
          EXPECT_THAT(error.what(), HasSubstr("cannot be used any more since it failed: the ranks "
                                              "do not agree"));
        }
        sum_once(world);
      },
      test_options());
}

TEST(ThreadMismatchTest, DifferentArgumentsAreFoundOnAllRanksWithBothCalls) {
  const auto failures = failures_of(3, [](World& world) {
    const at::Tensor data = at::ones({4});
    EXPECT_THROW(sum(world.group(), data, world.rank() == 2 ? "f32[5] sum" : "f32[4] sum"),
                 CommError);
    EXPECT_TRUE(at::equal(data, at::ones({4}))) << "data moved before the check";
    sum(world.group(), data);
  });
  for (const auto& failure : failures) {
    EXPECT_THAT(failure, HasSubstr("the ranks do not agree: rank 0 calls all_reduce(f32[4] sum), "
                                   "rank 2 calls all_reduce(f32[5] sum)"));
  }
}

TEST(ThreadMismatchTest, DifferentOperationsAreFoundEvenWithoutChecks) {
  const auto failures = failures_of(2, [](World& world) {
    const at::Tensor data = at::ones({4});
    auto& group = transport(world.group());
    (world.rank() == 0 ? group.all_reduce(data, ReduceOp::sum) : group.broadcast(data, 0))->wait();
  });
  for (const auto& failure : failures) {
    EXPECT_THAT(failure, HasSubstr("rank 0 calls all_reduce(), rank 1 calls broadcast()"));
  }
}

TEST(ThreadMismatchTest, SplitsThatDoNotFitAreFound) {
  const auto failures = failures_of(2, [](World& world) {
    const std::vector<std::int64_t> counts = {1, 1};
    const std::vector<std::int64_t> wrong = {1, 2};
    const at::Tensor data = at::ones({3});
    transport(world.group())
        .all_to_all(at::empty({3}), data, counts, world.rank() == 0 ? wrong : counts)
        ->wait();
  });
  for (const auto& failure : failures) {
    EXPECT_THAT(failure, HasSubstr("expects 1 element(s) from member 0, which sends 2"));
  }
}

TEST(ThreadMismatchTest, SendAndReceiveOfDifferentSizesAreFound) {
  const auto failures = failures_of(2, [](World& world) {
    auto& group = transport(world.group());
    (world.rank() == 0 ? group.send(at::ones({3}), 1, 0) : group.receive(at::ones({4}), 0, 0))
        ->wait();
  });
  for (const auto& failure : failures) {
    EXPECT_THAT(failure,
                HasSubstr("the sender sends 3 element(s) of Float, the receiver expects 4"));
  }
}

TEST(ThreadMismatchTest, AWrongPeerIsADeadlock) {
  const auto failures = failures_of(3, [](World& world) {
    auto& group = transport(world.group());
    if (world.rank() == 0) group.send(at::ones({3}), 1, 0)->wait();
    if (world.rank() == 1) group.receive(at::ones({3}), 2, 0)->wait();
  });
  EXPECT_THAT(failures[1], HasSubstr("rank 2 has returned without calling it"));
  EXPECT_THAT(failures[0], Not(::testing::IsEmpty()));
}

TEST(ThreadGroupTest, TheSameRanksAreTheSameGroup) {
  run_ranks(3, [](World& world) {
    EXPECT_EQ(world.group(), world.group({0, 1, 2}));
    if (world.rank() == 1) return;
    const Group pair = world.group({2, 0}, "pair");
    EXPECT_EQ(pair, world.group({2, 0}));
    EXPECT_EQ(pair.name(), "pair");
    EXPECT_EQ(pair.index(), world.rank() == 2 ? 0 : 1);
    EXPECT_EQ(pair.size(), 2);
  });
}

TEST(ThreadGroupTest, WrongRanksAreRefused) {
  run_ranks(2, [](World& world) {
    const auto refused = [&](const std::vector<std::int64_t>& ranks, const std::string& text) {
      EXPECT_THAT([&] { (void)world.group(ranks); },
                  ::testing::ThrowsMessage<InvalidArgument>(text));
    };
    refused({0, 2}, "World::group: rank 2 given among {0,2}; the world has ranks 0 to 1");
    refused({0, 1, 0}, "World::group: rank 0 given twice among {0,1,0}; name every member once");
    refused({1 - world.rank()},
            concat("World::group: ranks {", 1 - world.rank(), "} given on rank ", world.rank(),
                   "; only members can ask for a group"));
  });
}

TEST(ThreadGroupTest, AGroupDoesNotOutliveItsWorld) {
  std::optional<Group> kept;
  run_ranks(1, [&](World& world) { kept = world.group(); });
  EXPECT_THAT([&] { (void)kept->engine(); }, ::testing::ThrowsMessage<InvalidArgument>(HasSubstr(
                                                 "group world is used after its world has ended")));
}

}  // namespace
}  // namespace tessera::test
