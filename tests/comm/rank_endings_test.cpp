#include <atomic>
#include <new>
#include <thread>

#include <gmock/gmock.h>

#include "comm/collectives_inputs.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/world_state.h"

// Whatever the others wait in, and however a rank ends: they get an error that names it. That is at once,
// since after the time limit they would say that it did not call in time.

namespace tessera::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Waiting {
  /// The c10d name.
  std::string name;
  std::function<void(const Group&)> call;
  /// Whether it waits after the call, and not in it.
  bool is_async = false;
};

std::vector<Waiting> ways_to_wait() {
  const at::Tensor x = at::ones({12, 2});
  const Tensors two = {x, x};
  const auto ring = [](const Group& group) {
    Sizes destinations;
    for (std::int64_t i = 0; i < group.size(); ++i) destinations.push_back((i + 1) % group.size());
    return destinations;
  };
  return {
      {"all_reduce", [=](const Group& g) { (void)all_reduce(x, ReduceOp::sum, g); }},
      {"all_reduce_coalesced", [=](const Group& g) { (void)all_reduce(two, ReduceOp::sum, g); }},
      {"all_reduce",
       [=](const Group& g) { (void)wait(all_reduce(x, ReduceOp::sum, g, {.async_op = true})); },
       /*is_async=*/true},
      {"all_gather_into_tensor", [=](const Group& g) { (void)all_gather(x, 0, g); }},
      {"all_gather_into_tensor_coalesced", [=](const Group& g) { (void)all_gather(two, 0, g); }},
      {"reduce_scatter_tensor",
       [=](const Group& g) { (void)reduce_scatter(x, 0, ReduceOp::max, g); }},
      {"reduce_scatter_tensor_coalesced",
       [=](const Group& g) { (void)reduce_scatter(two, 0, ReduceOp::max, g); }},
      {"all_to_all_single", [=](const Group& g) { (void)all_to_all(x, {}, {}, g); }},
      {"broadcast", [=](const Group& g) { (void)broadcast(x, 0, g); }},
      {"scatter", [=](const Group& g) { (void)scatter(x, 0, 0, g); }},
      {"gather", [=](const Group& g) { (void)gather(x, 0, 0, g); }},
      {"all_to_all_single", [=](const Group& g) { (void)permute(x, ring(g), g); }},
      {"barrier", [](const Group& g) { barrier(g); }},
      {"all_gather_object", [](const Group& g) { (void)all_gather_object("bytes", g); }},
      {"redistribute",
       [](const Group& g) {
         const MeshShape mesh({g.size()});
         const Layout rows(mesh, {Shard(0)}, {12, 12});
         const Layout columns(mesh, {Shard(1)}, {12, 12});
         (void)redistribute_local(at::ones({12 / g.size(), 12}), rows, columns);
       }},
  };
}

struct Ending {
  std::string name;
  std::function<void()> end;
  std::string words;
};

std::vector<Ending> ways_to_end() {
  return {{"throws", [] { throw std::runtime_error("no more data"); }, "failed: no more data"},
          {"runs out of memory", [] { throw std::bad_alloc(); }, "failed: std::bad_alloc"},
          {"throws no exception", [] { throw 7; }, "failed: an unknown exception"},
          {"returns", [] {}, "has returned without calling it"}};
}

/// Expects all ranks but one to notice how that one ended. Returns how many did.
int notice_end(const Waiting& waiting, const Ending& ending, std::int64_t ranks,
               std::int64_t culprit) {
  std::atomic<int> noticed = 0;
  const auto run = [&](World& world) {
    if (world.rank() == culprit) return ending.end();
    const auto error = thrown_by<CommError>([&] { waiting.call(world.group()); });
    EXPECT_THAT(
        error,
        AllOf(StartsWith(concat(waiting.name, " on group world, rank ", world.rank(), ", after ")),
              HasSubstr(concat("rank ", culprit, ' ', ending.words))));
    EXPECT_THAT(thrown_by<CommError>([&] { barrier(world.group()); }),
                HasSubstr("cannot be used any more"));
    ++noticed;
  };
  try {
    run_ranks(ranks, run, test_options());
    EXPECT_EQ(ending.name, "returns");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith(concat("rank ", culprit)));
  }
  return noticed;
}

TEST(RankEndingTest, IsNoticedInWhateverTheOthersWait) {
  for (const auto& waiting : ways_to_wait()) {
    for (const auto& ending : ways_to_end()) {
      for (const std::int64_t ranks : {2, 3, 4}) {
        SCOPED_TRACE(concat(waiting.name, ", rank 1 of ", ranks, ' ', ending.name));
        EXPECT_EQ(notice_end(waiting, ending, ranks, 1), ranks - 1);
      }
    }
  }
}

TEST(RankEndingTest, IsNoticedByBothSidesOfAMessage) {
  for (const auto& ending : ways_to_end()) {
    const at::Tensor x = at::ones({3});
    SCOPED_TRACE(ending.name);
    (void)notice_end({"send", [=](const Group& group) { send(x, 1, group); }}, ending, 3, 1);
    (void)notice_end({"recv", [=](const Group& group) { (void)recv(x, 1, group); }}, ending, 2, 1);
  }
}

/// Two threads of rank 0 make a call, and rank 1 makes its own when one of them was refused.
void call_twice(World& world, std::atomic<bool>& refused,
                const std::function<void(const Group&)>& call, const std::string& function) {
  const Group group = world.group();
  if (world.rank() != 0) {
    while (!refused) std::this_thread::yield();
    return call(group);
  }
  std::atomic<int> refusals = 0;
  const auto call_or_be_refused = [&] {
    try {
      call(group);
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(function + ": called on rank 0 while another thread of that rank "));
      ++refusals;
      refused = true;
    }
  };
  std::thread other(call_or_be_refused);
  call_or_be_refused();
  other.join();
  EXPECT_EQ(refusals, 1);
}

TEST(TwoThreadsOfARankTest, CannotCommunicateAtTheSameTime) {
  for (const auto& [name, call, is_async] : ways_to_wait()) {
    // Both may begin, one after the other, and only then wait at the same time: see the next test.
    if (is_async) continue;
    std::atomic<bool> refused = false;
    run_ranks(
        2,
        [&, &each = call, redistributes = name == "redistribute"](World& world) {
          // What the second thread knows of the world, it knows from the first.
          const std::function<void(const Group&)> in_world = [&](const Group& group) {
            const detail::CurrentWorld current(world.state().shared_from_this());
            each(group);
          };
          call_twice(world, refused, in_world, redistributes ? "redistribute_local" : "");
          barrier(world.group());
        },
        test_options());
  }
}

TEST(TwoThreadsOfARankTest, CannotWaitAtTheSameTime) {
  std::atomic<bool> refused = false;
  run_ranks(
      2,
      [&](World& world) {
        const Group group = world.group();
        const auto begin = [&] {
          return all_reduce(at::ones({2}), ReduceOp::sum, group, {.async_op = true});
        };
        const std::vector<at::Tensor> pending =
            world.rank() == 0 ? std::vector{begin(), begin()} : std::vector<at::Tensor>();
        std::atomic<std::size_t> next = 0;
        const auto wait_for_next = [&](const Group& /*group*/) {
          if (world.rank() == 0) return void(wait(pending[next++]));
          for (int i = 0; i < 2; ++i) (void)wait(begin());
        };
        call_twice(world, refused, wait_for_next, "wait");
        for (const auto& each : pending) EXPECT_EQ(wait(each)[0].item<double>(), 2);
      },
      test_options());
}

TEST(TwoThreadsOfARankTest, MayCommunicateOneAfterTheOther) {
  run_ranks(
      3,
      [](World& world) {
        const Group group = world.group();
        at::Tensor sum;
        std::thread([&] { sum = all_reduce(at::ones({2}), ReduceOp::sum, group); }).join();
        EXPECT_EQ(all_reduce(sum, ReduceOp::max, group)[0].item<double>(), 3);
      },
      test_options());
}

}  // namespace
}  // namespace tessera::test
