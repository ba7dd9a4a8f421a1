#include <algorithm>
#include <array>
#include <chrono>
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "support/rank_test.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/threads/thread_hub.h"
#include "tessera/comm/traffic.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
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

TEST(ThreadFaultTest, ARankThatNeverComesIsNamedWhenTheTimeIsUp) {
  constexpr std::chrono::milliseconds kLimit{200};
  std::latch begun(2);
  std::latch told(2);
  std::array<std::chrono::milliseconds, 3> elapsed{};
  const auto run = [&](World& world) {
    if (world.rank() == 1) return told.wait();
    // Both have begun before the time of either is up.
    transport(world.group()).check({"all_reduce", "f32[4] sum"});
    const auto pending = transport(world.group()).all_reduce(at::ones({4}), ReduceOp::sum);
    begun.arrive_and_wait();
    try {
      pending->wait();
    } catch (const CommError& error) {
      elapsed[static_cast<std::size_t>(world.rank())] = error.elapsed();
      EXPECT_EQ(error.operation(), "all_reduce");
      EXPECT_EQ(error.group(), "world");
      told.count_down();
      throw;
    }
    told.count_down();
  };
  const auto failures = failures_of(3, run, {.timeout = kLimit});
  EXPECT_THAT(failures[0], HasSubstr("rank 1 did not call it in time"));
  EXPECT_THAT(failures[2], HasSubstr("rank 1 did not call it in time"));
  // One fails when its time is up, and the other with it.
  EXPECT_GE(std::max(elapsed[0], elapsed[2]), kLimit);
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

TEST(ThreadMismatchTest, ReductionsThatDoNotFitAreFoundEvenWithoutChecks) {
  const auto sizes = failures_of(3, [](World& world) {
    const at::Tensor data = at::ones({world.rank() == 1 ? 5 : 4});
    transport(world.group()).all_reduce(data, ReduceOp::sum)->wait();
  });
  EXPECT_THAT(sizes, ::testing::Each(HasSubstr("in all_reduce() member 1 reduces 5 element(s) of "
                                               "Float by sum, member 0 4 of Float by sum")));
  const auto ops = failures_of(2, [](World& world) {
    const auto op = world.rank() == 1 ? ReduceOp::max : ReduceOp::sum;
    const std::vector<std::int64_t> counts = {2, 2};
    transport(world.group()).reduce_scatter(at::ones({2}), at::ones({4}), counts, op)->wait();
  });
  EXPECT_THAT(ops, ::testing::Each(HasSubstr("in reduce_scatter_tensor() member 1 reduces Float by "
                                             "max with sizes (2, 2), member 0 Float by sum")));
  const auto widths = failures_of(2, [](World& world) {
    const auto dtype = world.rank() == 1 ? at::kDouble : at::kFloat;
    const std::vector<std::int64_t> counts = {2, 2};
    transport(world.group()).all_gather(at::ones({4}, dtype), at::ones({2}, dtype), counts)->wait();
  });
  EXPECT_THAT(widths, ::testing::Each(HasSubstr("expects elements of 4 byte(s) from member 1")));
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

TEST(ThreadMismatchTest, AWrongPeerThatHasReturnedIsNamedByBothEnds) {
  const auto failures = failures_of(3, [](World& world) {
    auto& group = transport(world.group());
    if (world.rank() == 0) group.send(at::ones({3}), 1, 0)->wait();
    if (world.rank() == 1) group.receive(at::ones({3}), 2, 0)->wait();
  });
  for (const std::size_t rank : {0, 1}) {
    EXPECT_THAT(failures[rank], HasSubstr("rank 2 has returned without calling it"));
  }
}

TEST(ThreadFaultTest, AnExceptionDoesNotWaitForWhatIsUnderWay) {
  // Rank 1 throws while it holds the result of a call that rank 0 makes only after a barrier that
  // rank 1 never reaches.
  const auto failures = failures_of(2, [](World& world) {
    const Group turned = world.group({1, 0});
    if (world.rank() == 0) {
      barrier(world.group());
      return;
    }
    const at::Tensor pending = all_reduce(at::ones({4}), ReduceOp::sum, turned, {.async_op = true});
    throw std::runtime_error("disk full");
  });
  EXPECT_EQ(failures[1], "disk full");
  EXPECT_THAT(failures[0], HasSubstr("rank 1 failed: disk full"));
  EXPECT_THAT(failure_of(2,
                         [](World& world) {
                           if (world.rank() == 0) barrier(world.group());
                           const at::Tensor pending =
                               all_reduce(at::ones({4}), ReduceOp::sum, world.group({1, 0}),
                                          {.async_op = true});
                           throw std::runtime_error("disk full");
                         }),
              "rank 1: disk full");
}

/// An operation with much to copy, in which one member's share fails.
class FailingOp : public detail::ThreadOp {
 public:
  explicit FailingOp(bool fails) : ThreadOp("all_reduce", {}), fails_(fails) {}
  void run(std::span<ThreadOp* const> /*members*/, std::int64_t /*phase*/) override {
    if (fails_) throw std::runtime_error("cannot copy");
  }
  [[nodiscard]] std::int64_t bytes() const override { return 1 << 30; }

 private:
  bool fails_;
};

TEST(ThreadFaultTest, AShareThatFailsFailsOnAllMembers) {
  for (int attempt = 0; attempt < 50; ++attempt) {
    detail::ThreadHub hub(3);
    const auto group = hub.group({0, 1, 2}, "world");
    std::vector<std::string> errors(3);
    std::vector<std::thread> ranks;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          const auto slot = hub.post(*group, 0, rank, std::make_shared<FailingOp>(rank == 1));
          hub.wait(*group, slot, rank, std::chrono::seconds(20));
        } catch (const CommError& error) {
          errors[rank] = error.what();
        }
      });
    }
    for (auto& rank : ranks) rank.join();
    EXPECT_THAT(errors, ::testing::Each(HasSubstr("cannot copy")));
  }
}

TEST(ThreadGroupTest, GroupsAreNamedAfterMeshDimsInErrorsAndTraffic) {
  run_ranks(
      4,
      [](World& world) {
        const DeviceMesh mesh = init_device_mesh("cpu", {2, 2}, {"dp", "tp"});
        EXPECT_EQ(mesh["tp"].group().name(), "tp");
        EXPECT_EQ(mesh.group().name(), "world");
        EXPECT_EQ(init_device_mesh("cpu", {4}, {"all"}).group().name(), "world");
        EXPECT_EQ(world.group().name(), "world");
        CommDebugMode traffic;
        {
          const auto scope = traffic.record();
          barrier(mesh["tp"]);
        }
        EXPECT_EQ(traffic.records().at(0).group, "tp");
        try {
          (void)all_reduce(at::ones({2 + world.rank() % 2}), ReduceOp::sum, mesh["tp"]);
          ADD_FAILURE() << "the mismatch was not found";
        } catch (const CommError& error) {
          EXPECT_EQ(error.group(), "tp");
          EXPECT_THAT(error.what(), ::testing::StartsWith("all_reduce on group tp, rank "));
        }
      },
      test_options());
}

TEST(ThreadGroupTest, TheFirstNameThatIsGivenStays) {
  run_ranks(3, [](World& world) {
    if (world.rank() == 2) return;
    EXPECT_EQ(world.group({0, 1}).name(), "{0,1}");
    EXPECT_EQ(world.group({0, 1}, "pair").name(), "pair");
    EXPECT_EQ(world.group({0, 1}, "other").name(), "pair");
  });
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
