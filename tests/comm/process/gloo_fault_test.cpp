#include <algorithm>
#include <csignal>
#include <iostream>
#include <memory>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include "comm/process/ending_cases.h"
#include "comm/process/fault_work.h"
#include "comm/process/gloo_ranks.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

/// When the processes of survivors must have ended after a rank is gone.
constexpr milliseconds kEnded{4500};

/// A job in which something goes wrong: its ranks say when they noticed.
class FaultyJob : public GlooJob {
 public:
  FaultyJob(std::int64_t size, const RankFunction& fn,
            const WorldOptions& options = short_options(), Exit exit = Exit::as_usual)
      : GlooJob(
            size,
            [fn](World& world) {
              try {
                fn(world);
              } catch (const CommError& error) {
                std::cout << "after " << error.elapsed().count() << " ms" << std::endl;
                throw;
              }
            },
            options, exit) {}
};

/// Expects that all ranks but one ended in time, with an error that has all of `words`.
void expect_survivors_say(const std::vector<ProcessResult>& results, std::int64_t victim,
                          milliseconds gone_at, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (static_cast<std::int64_t>(i) == victim) continue;
    EXPECT_FALSE(results[i].overdue) << outputs_of(results);
    EXPECT_EQ(results[i].status, 1) << outputs_of(results);
    EXPECT_LE(results[i].ended, gone_at + kEnded) << outputs_of(results);
    for (const auto& word : words) EXPECT_THAT(results[i].output, HasSubstr(word)) << "rank " << i;
  }
}

/// Expects all ranks but one to have thrown within the time limit and a second.
void expect_thrown_in_time(const std::vector<ProcessResult>& results, std::int64_t victim) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (static_cast<std::int64_t>(i) == victim) continue;
    EXPECT_LE(noticed_after(results[i]), kThrownInTime) << outputs_of(results);
  }
}

TEST(GlooFaultTest, SurvivorsNameAKilledRank) {
  constexpr int kKills = 30;
  constexpr int kAtATime = 2;
  constexpr std::int64_t kSize = 3;
  std::mt19937 random(7);
  for (int kill = 0; kill < kKills; kill += kAtATime) {
    std::vector<std::unique_ptr<FaultyJob>> jobs;
    for (int i = 0; i < kAtATime; ++i)
      jobs.push_back(std::make_unique<FaultyJob>(kSize, work_forever));
    for (auto& job : jobs) {
      Processes& processes = job->processes();
      ASSERT_TRUE(processes.wait_for_output("ready", milliseconds(20'000)))
          << outputs_of(processes.finish(milliseconds(0)));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
      const auto victim = static_cast<std::int64_t>(random() % kSize);
      processes.signal(victim, SIGKILL);
      const auto gone_at = processes.since_begin();
      const auto results = processes.finish(gone_at + kEnded + milliseconds(3000));
      SCOPED_TRACE(concat("kill ", kill, " of rank ", victim, '\n', outputs_of(results)));
      expect_survivors_say(results, victim, gone_at,
                           {concat("rank ", victim, " is gone: process "), "on group world"});
      expect_thrown_in_time(results, victim);
      EXPECT_EQ(results[static_cast<std::size_t>(victim)].status, 128 + SIGKILL);
    }
  }
}

/// Expects ranks 0 and 2 to say what became of rank 1. A busy machine may take a second to end a process;
/// that is far from the time limit, so who throws long before it has noticed and not waited.
void expect_end_noticed(GlooJob& job, const EndingCase& ending, milliseconds timeout) {
  const auto results = job.processes().finish(timeout + milliseconds(20'000));
  SCOPED_TRACE(concat(ending.name, '\n', outputs_of(results)));
  for (const std::size_t rank : {0, 2}) {
    EXPECT_THAT(results[rank].output,
                ContainsRegex(concat("threw: ", ending.beginning, rank,
                                     ", after [0-9]+ ms: rank 1 ", ending.words)));
    EXPECT_EQ(results[rank].status, 1);
    EXPECT_LT(noticed_after(results[rank]), timeout / 2);
  }
  EXPECT_FALSE(results[1].overdue);
}

TEST(GlooFaultTest, SurvivorsNameARankThatEndsInWhateverTheyWait) {
  constexpr std::size_t kAtATime = 5;
  const auto cases = all_ending_cases();
  const WorldOptions options = patient_options();
  for (std::size_t first = 0; first < cases.size() && !HasFailure(); first += kAtATime) {
    std::vector<std::unique_ptr<FaultyJob>> jobs;
    const std::size_t end = std::min(first + kAtATime, cases.size());
    for (std::size_t i = first; i < end; ++i) {
      jobs.push_back(std::make_unique<FaultyJob>(3, cases[i].run, options, Exit::at_once));
    }
    for (std::size_t i = first; i < end; ++i) {
      expect_end_noticed(*jobs[i - first], cases[i], options.timeout);
    }
  }
}

TEST(GlooFaultTest, ARankThatNeverComesIsNamedAfterTheTimeLimit) {
  FaultyJob job(3, [](World& world) {
    if (world.rank() == 2) std::this_thread::sleep_for(milliseconds(4200));
    work_forever(world);
  });
  const auto results = job.processes().finish(milliseconds(20'000));
  expect_survivors_say(results, 2, milliseconds(10'000),
                       {"rank 2 did not come (process ", "is running)", "the time limit is 2000 ms",
                        "all_reduce on group world"});
  // The first to give up tells the other, which may have come later and then has waited for less.
  EXPECT_GE(std::max(noticed_after(results[0]), noticed_after(results[1])), milliseconds(2000));
  expect_thrown_in_time(results, 2);
  // Who comes too late learns that the others have given up, and why.
  EXPECT_THAT(results[2].output, HasSubstr("did not come"));
  EXPECT_EQ(results[2].status, 1);
}

TEST(GlooFaultTest, AStoppedRankIsNamed) {
  FaultyJob job(3, work_forever);
  Processes& processes = job.processes();
  ASSERT_TRUE(processes.wait_for_output("ready", milliseconds(20'000)));
  processes.signal(1, SIGSTOP);
  const auto gone_at = processes.since_begin();
  const auto results = processes.finish(gone_at + kEnded + milliseconds(1000));
  expect_survivors_say(results, 1, gone_at, {"rank 1 did not come (process ", "is stopped)"});
  expect_thrown_in_time(results, 1);
}

TEST(GlooFaultTest, ASlowRankIsNotBlamed) {
  run_gloo(
      3,
      [](World& world) {
        for (std::int64_t round = 0; round < 3; ++round) {
          // Long enough for the others to become suspicious, and far from the limit.
          if (world.rank() == round) std::this_thread::sleep_for(milliseconds(800));
          work_once(world.group(), round);
        }
      },
      short_options());
}

TEST(GlooFaultTest, CallsOnDifferentGroupsAreNamedAfterTheTimeLimitWithoutChecks) {
  WorldOptions options = short_options();
  options.check = false;
  FaultyJob job(
      3,
      [](World& world) {
        if (world.rank() < 2) work_once(world.group({0, 1}, "pair"), 0);
        const Group group = world.rank() == 1 ? world.group({0, 1}) : world.group();
        work_once(group, 1);
      },
      options);
  const auto results = job.processes().finish(milliseconds(20'000));
  expect_survivors_say(results, 1, milliseconds(10'000), {": rank 1 "});
  // Who gives up first may have said so when the others do.
  const auto says_where = [](const std::string& group) {
    return ContainsRegex(concat("(it calls all_reduce\\(float32\\[100\\] sum, round 1\\) on group ",
                                group, "|failed: all_reduce on group ", group, ")"));
  };
  EXPECT_THAT(results[0].output, says_where("pair"));
  EXPECT_THAT(results[1].output, says_where("world"));
}

TEST(GlooFaultTest, AGroupThatFailedToConnectStaysFailed) {
  run_gloo(3, [](World& world) {
    if (world.rank() == 2) return;
    const Group group = world.group({2, 0, 1}, "turned");
    for (const char* words : {"rank 2 has returned without calling it, in connect()",
                              "the group cannot be used any more since it failed: rank 2"}) {
      try {
        work_once(group, 0);
        ADD_FAILURE() << "the group can be used";
      } catch (const CommError& error) {
        EXPECT_THAT(error.what(), HasSubstr(words));
        EXPECT_EQ(error.group(), "turned");
      }
    }
  });
}

TEST(GlooFaultTest, AMessageFromAKilledRankIsMissedAtOnceWithoutChecksToo) {
  FaultyJob job(3,
                [](World& world) {
                  EXPECT_FALSE(world.options().check);
                  barrier(world.group());
                  if (world.rank() == 1) raise(SIGKILL);
                  if (world.rank() == 0) (void)recv(at::full({4}, 1, at::kFloat), 1, world.group());
                  // Stays, so that only the killed one is gone.
                  if (world.rank() == 2) std::this_thread::sleep_for(milliseconds(3000));
                },
                {.timeout = std::chrono::seconds(20), .check = false});
  const auto results = job.processes().finish(milliseconds(40'000));
  EXPECT_THAT(results[0].output, AllOf(HasSubstr("recv on group world, rank 0, after "),
                                       HasSubstr("rank 1 is gone: process ")));
  EXPECT_LT(results[0].ended, milliseconds(15'000)) << "it waited for the time limit";
}

TEST(GlooFaultTest, AnExceptionDoesNotWaitForWhatIsUnderWay) {
  FaultyJob job(3, [](World& world) {
    if (world.rank() != 1) work_forever(world);
    // Nobody sends it.
    const at::Tensor pending =
        recv(at::full({4}, 1, at::kFloat), 0, world.group(), 0, {.async_op = true});
    throw std::runtime_error("no more data");
  });
  const auto results = job.processes().finish(milliseconds(20'000));
  expect_survivors_say(results, 1, milliseconds(11'000), {"rank 1 failed: no more data"});
}

TEST(GlooFaultTest, MessagesThatDoNotMatchAreErrorsOnBothSides) {
  FaultyJob job(3, [](World& world) {
    detail::Transport& transport = detail::connect(world.group());
    const at::Tensor data = at::full({4}, 1, at::kFloat);
    if (world.rank() == 0) {
      transport.check({"send", "float32[4]"});
      transport.send(data, 1, 0)->wait();
    } else if (world.rank() == 1) {
      transport.check({"recv", "float32[5]"});
      transport.receive(at::full({5}, 1, at::kFloat), 0, 0)->wait();
    }
  });
  const auto results = job.processes().finish(milliseconds(20'000));
  expect_survivors_say(
      results, 2, milliseconds(10'000),
      {"the ranks do not agree: rank 0 calls send(float32[4]), rank 1 calls recv(float32[5])"});
  EXPECT_EQ(results[2].status, 0);
}

TEST(GlooFaultTest, AMessageFromAnotherPeerThanExpectedIsNamedAfterTheTimeLimit) {
  FaultyJob job(3, [](World& world) {
    detail::Transport& transport = detail::connect(world.group());
    const at::Tensor data = at::full({4}, 1, at::kFloat);
    if (world.rank() == 0) {
      transport.check({"send", "float32[4]"});
      transport.send(data, 1, 0)->wait();
    } else if (world.rank() == 1) {
      transport.check({"recv", "float32[4]"});
      transport.receive(data, 2, 0)->wait();
    } else {
      std::this_thread::sleep_for(milliseconds(4000));
    }
  });
  const auto results = job.processes().finish(milliseconds(20'000));
  EXPECT_THAT(
      results[0].output,
      ContainsRegex("rank 1 failed( in recv\\(float32\\[4\\], from rank 2\\)|: recv on group)"));
  EXPECT_THAT(results[1].output, HasSubstr("rank 2 did not come"));
  EXPECT_EQ(results[0].status, 1);
  EXPECT_EQ(results[1].status, 1);
}

}  // namespace
}  // namespace tessera::test
