// Layouts with equal contents share one record, which dies with the last of them. In a
// program of its own, which counts its allocations.

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "layout/allocation_count.h"
#include "support/random_layout.h"
#include "tessera/base/hash.h"
#include "tessera/layout/layout.h"

namespace tessera {
namespace {

constexpr std::size_t kThreads = 8;

/// Runs `work(thread)` on eight threads that start together.
template <typename Work>
void on_threads(const Work& work) {
  std::barrier start(static_cast<std::ptrdiff_t>(kThreads));
  std::vector<std::jthread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      start.arrive_and_wait();
      work(thread);
    });
  }
}

Layout layout_of(std::int64_t rows) {
  return Layout(MeshShape({2, 2}, {"dp", "tp"}), {Shard(0), Shard(0)}, {rows, 4}, {1, 0});
}

/// Two layouts whose records have the same 64-bit hash.
Layout colliding_layout(bool other) {
  const Shape shape = other ? Shape{496, 557'147'869'100'917} : Shape{1, 1};
  return Layout(MeshShape({2}), {Replicate()}, shape);
}

TEST(LayoutInterningTest, ManyThreadsAtOnceGetOneRecord) {
  for (std::int64_t round = 0; round < 100; ++round) {
    std::vector<std::vector<Layout>> made(kThreads);
    on_threads([&](std::size_t thread) {
      for (std::int64_t rows = 0; rows < 10; ++rows) made[thread].push_back(layout_of(rows));
    });
    for (const auto& layouts : made) {
      ASSERT_EQ(layouts, made.front());
      for (std::size_t i = 0; i < layouts.size(); ++i) {
        ASSERT_EQ(&layouts[i].shape(), &made.front()[i].shape());
        ASSERT_EQ(layouts[i].hash(), made.front()[i].hash());
      }
    }
  }
}

TEST(LayoutInterningTest, RecordsThatComeAndGoOnManyThreadsStayRight) {
  std::atomic<int> wrong{0};
  on_threads([&](std::size_t thread) {
    test::Random random(thread);
    for (int i = 0; i < 5000; ++i) {
      // Few different layouts, so that one thread finds what another one is just letting go.
      const std::int64_t rows = random.between(0, 3);
      const Layout layout = layout_of(rows);
      const Layout again = layout_of(rows);
      if (layout != again || layout.shape() != Shape{rows, 4}) wrong.fetch_add(1);
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(LayoutInterningTest, TheLastLayoutFreesTheRecord) {
  const auto make_and_drop = [] {
    std::vector<Layout> layouts;
    for (std::int64_t rows = 0; rows < 1000; ++rows) layouts.push_back(layout_of(rows));
    return layouts.size();
  };
  ASSERT_EQ(make_and_drop(), 1000U);  // The table itself may grow, once.
  const std::int64_t before = test::live_allocations();
  ASSERT_EQ(make_and_drop(), 1000U);
  EXPECT_EQ(test::live_allocations(), before);
}

TEST(LayoutInterningTest, RecordsMadeAndDroppedOnManyThreadsAreFreed) {
  const auto make_and_drop = [](std::size_t) {
    for (std::int64_t rows = 0; rows < 500; ++rows) static_cast<void>(layout_of(rows));
  };
  on_threads(make_and_drop);
  const std::int64_t before = test::live_allocations();
  on_threads(make_and_drop);
  EXPECT_EQ(test::live_allocations(), before);
}

TEST(LayoutInterningTest, ALayoutOutlivesTheOneItWasFoundBy) {
  auto first = std::make_unique<Layout>(layout_of(7));
  const Layout second = layout_of(7);
  first.reset();
  EXPECT_EQ(second.shape(), (Shape{7, 4}));
  EXPECT_EQ(second, layout_of(7));
}

TEST(LayoutInterningTest, LayoutsWhoseHashesCollideStayDistinct) {
  const Layout one = colliding_layout(false);
  const Layout other = colliding_layout(true);
  ASSERT_EQ(hash_range(one.shape()), hash_range(other.shape()))
      << "the hash has changed: choose new shapes";
  EXPECT_NE(one, other);
  EXPECT_EQ(one, colliding_layout(false));
  EXPECT_EQ(other, colliding_layout(true));
}

TEST(LayoutInterningTest, CollidingRecordsThatComeAndGoDoNotBlockEachOther) {
  std::atomic<int> wrong{0};
  on_threads([&](std::size_t thread) {
    const bool other = thread % 2 == 0;
    for (int i = 0; i < 20'000; ++i) {
      if (colliding_layout(other).shape().front() != (other ? 496 : 1)) wrong.fetch_add(1);
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace tessera
