#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "support/rank_test.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/redistribute_local.h"

namespace tessera::test {
namespace {

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

/// Keeps the calling thread, and those that it starts, on two of the cores that it may use; on one where
/// there are no more.
class TwoCores {
 public:
  TwoCores() {
    EXPECT_EQ(sched_getaffinity(0, sizeof(before_), &before_), 0);
    cpu_set_t two;
    CPU_ZERO(&two);
    for (std::size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++core) {
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &two);
    }
    EXPECT_EQ(sched_setaffinity(0, sizeof(two), &two), 0);
  }
  ~TwoCores() { EXPECT_EQ(sched_setaffinity(0, sizeof(before_), &before_), 0); }
  TwoCores(const TwoCores&) = delete;
  TwoCores& operator=(const TwoCores&) = delete;

 private:
  cpu_set_t before_{};
};

/// Sums of so many elements over all ranks.
void sum_often(const World& world, std::int64_t elements, int rounds) {
  const std::int64_t expected = world.size() * (world.size() - 1) / 2;
  for (int i = 0; i < rounds; ++i) {
    const at::Tensor x = at::full({elements}, static_cast<double>(world.rank()));
    const at::Tensor sum = all_reduce(x, ReduceOp::sum, world.group());
    ASSERT_TRUE(at::equal(sum, at::full({elements}, static_cast<double>(expected))));
  }
}

/// From rows to columns and back.
void redistribute_often(const World& world, int rounds) {
  const std::int64_t ranks = world.size();
  const Layout rows(MeshShape({ranks}), {Shard(0)}, {2 * ranks, ranks});
  const Layout columns(MeshShape({ranks}), {Shard(1)}, {2 * ranks, ranks});
  const at::Tensor whole = at::arange(2 * ranks * ranks).view({2 * ranks, ranks});
  const at::Tensor local = whole.narrow(0, 2 * world.rank(), 2);
  for (int i = 0; i < rounds; ++i) {
    const at::Tensor moved = redistribute_local(local, rows, columns);
    ASSERT_TRUE(at::equal(moved, whole.narrow(1, world.rank(), 1)));
    ASSERT_TRUE(at::equal(redistribute_local(moved, columns, rows), local));
  }
}

TEST(RunRanksTest, SixtyFourRanksOnTwoCoresDoNotStarve) {
  const TwoCores two_cores;
  run_ranks(
      64,
      [](World& world) {
        cpu_set_t own;
        ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
        ASSERT_LE(CPU_COUNT(&own), 2);
        sum_often(world, 4, 50);
        for (int i = 0; i < 200; ++i) barrier(world.group());
        // 400 KB each, which all members help to sum.
        sum_often(world, 100'000, 3);
        redistribute_often(world, 20);
      },
      test_options());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Asks for more threads than there is room for their stacks, which are made large so that there is
/// room for everything else.
[[noreturn]] void run_too_many_ranks() {
  constexpr std::size_t kStack = std::size_t{1} << 30U;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_setattr_default_np(&attributes);
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  rlimit memory{};
  getrlimit(RLIMIT_AS, &memory);
  memory.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + 5 * kStack + kStack / 2;
  setrlimit(RLIMIT_AS, &memory);
  try {
    run_ranks(
        20, [](World& world) { barrier(world.group()); }, test_options());
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    std::_Exit(5);
  }
  std::_Exit(0);
}

TEST(RunRanksDeathTest, AThreadThatCannotBeStartedEndsTheOthers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_too_many_ranks(), ::testing::ExitedWithCode(5),
              "rank [0-9]+: run_ranks: the thread of rank [0-9]+ of 20 could not be started "
              "\\(.*\\); ask for fewer ranks");
}
#endif

TEST(RunRanksTest, RanksShareTheCoresUnlessTheUserDecides) {
  const auto threads_in_a_rank = [] {
    int threads = 0;
    run_ranks(1, [&](World&) { threads = at::get_num_threads(); });
    return threads;
  };
  const char* before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before == nullptr ? "" : before;
  unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(threads_in_a_rank(), static_cast<int>(std::thread::hardware_concurrency()));
  setenv("OMP_NUM_THREADS", "3", 1);
  const int own = at::get_num_threads();
  at::set_num_threads(own + 2);
  EXPECT_EQ(threads_in_a_rank(), own + 2);
  at::set_num_threads(own);
  before == nullptr ? unsetenv("OMP_NUM_THREADS") : setenv("OMP_NUM_THREADS", kept.c_str(), 1);
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

}  // namespace
}  // namespace tessera::test
