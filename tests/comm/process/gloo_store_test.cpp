#include <iostream>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/process/fault_work.h"
#include "comm/process/gloo_ranks.h"
#include "tessera/base/concat.h"
#include "tessera/comm/c10d/listener.h"
#include "tessera/comm/comm_error.h"

// What becomes of ranks when the store dies at which they met, and of those that meet there again.

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// Time for a job to end after a rank was killed: the limit, a second, and the farewell.
constexpr milliseconds kEnded{4500};

/// Ranks that meet there.
class Job : public GlooJob {
 public:
  Job(std::int64_t size, const detail::Rendezvous& rendezvous, const RankFunction& fn)
      : GlooJob(size, fn, short_options(), rendezvous) {}
};

void work_a_bit(World& world) {
  for (std::int64_t round = 0; round < 3; ++round) work_once(world.group(), round);
}

TEST(GlooStoreTest, WhoServesTheStoreIsMissedAndItsPortIsFreeAgain) {
  constexpr int kKills = 20;
  const auto rendezvous = at_port(find_free_port());
  std::mt19937 random(3);
  for (int kill = 0; kill < kKills && !HasFailure(); ++kill) {
    const std::int64_t size = 2 + kill % 3;
    SCOPED_TRACE(concat("kill ", kill, " of ", size, " ranks"));
    Job job(size, rendezvous, work_forever);
    Processes& processes = job.processes();
    ASSERT_TRUE(processes.wait_for_output("ready", milliseconds(20'000)))
        << outputs_of(processes.finish(milliseconds(0)));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    processes.signal(0, SIGKILL);
    const auto gone_at = processes.since_begin();
    const auto results = processes.finish(gone_at + kEnded);
    for (std::size_t rank = 1; rank < results.size(); ++rank) {
      EXPECT_THAT(results[rank].output, HasSubstr("rank 0 is gone: process "));
      EXPECT_EQ(results[rank].status, 1);
      EXPECT_FALSE(results[rank].overdue);
    }
    // The next ranks meet at the same port, and nothing of these is left there.
    for (const auto& result :
         Job(size, rendezvous, work_a_bit).processes().finish(milliseconds(20'000))) {
      EXPECT_EQ(result.status, 0) << result.output;
    }
  }
}

/// A process that serves a store for others, as torchrun's agent does, until it is killed.
class Agent {
 public:
  explicit Agent(std::uint16_t port)
      : processes_(1, [port](std::int64_t) {
          c10d::TCPStoreOptions options;
          options.port = port;
          options.isServer = true;
          options.waitWorkers = false;
          // By itself it would listen on all addresses of the machine.
          const auto rendezvous = at_port(port);
          options.masterListenFd = detail::bind_listener(detail::resolve(rendezvous), rendezvous);
          const c10d::TCPStore store("127.0.0.1", options);
          std::cout << "serves" << std::endl;
          std::this_thread::sleep_for(std::chrono::minutes(2));
          return 0;
        }) {}

  bool is_ready() { return processes_.wait_for_output("serves", milliseconds(20'000)); }
  void kill() {
    processes_.signal(0, SIGKILL);
    (void)processes_.finish(milliseconds(0));
  }

 private:
  Processes processes_;
};

detail::Rendezvous at_agent(std::uint16_t port, std::int64_t generation = 0) {
  auto rendezvous = at_port(port);
  rendezvous.agent_serves_store = true;
  rendezvous.generation = generation;
  return rendezvous;
}

TEST(GlooStoreTest, WithoutItsStoreAWorldKeepsItsGroupsButGetsNoNewOnes) {
  const std::uint16_t port = find_free_port();
  Agent agent(port);
  ASSERT_TRUE(agent.is_ready());
  const TemporaryFolder folder;
  const std::string sign = folder.path() + "/killed";
  Job job(3, at_agent(port), [&](World& world) {
    work_a_bit(world);
    std::cout << "ready" << std::endl;
    while (access(sign.c_str(), F_OK) != 0) std::this_thread::sleep_for(milliseconds(10));
    // What is connected does not need it.
    work_a_bit(world);
    try {
      work_once(world.group({2, 1, 0}, "turned"), 0);
      ADD_FAILURE() << "a group met without a store";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith("connect on group turned, rank "));
      std::cout << error.what() << std::endl;
    }
    EXPECT_NO_THROW(work_a_bit(world));
  });
  ASSERT_TRUE(job.processes().wait_for_output("ready", milliseconds(20'000)));
  agent.kill();
  std::fclose(std::fopen(sign.c_str(), "w"));
  const auto results = job.processes().finish(milliseconds(20'000));
  for (const auto& result : results) {
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("the store that the launcher serves cannot be reached"));
  }
}

TEST(GlooStoreTest, RanksThatAreStartedAgainFindNothingOfThoseBefore) {
  const std::uint16_t port = find_free_port();
  Agent agent(port);
  ASSERT_TRUE(agent.is_ready());
  for (std::int64_t generation = 0; generation < 4; ++generation) {
    SCOPED_TRACE(generation);
    // Killed in the middle of their work, all but for the last.
    Job job(3, at_agent(port, generation), generation < 3 ? work_forever : work_a_bit);
    if (generation < 3) {
      ASSERT_TRUE(job.processes().wait_for_output("ready", milliseconds(20'000)));
      for (const std::int64_t rank : {0, 1, 2}) job.processes().signal(rank, SIGKILL);
    }
    for (const auto& result : job.processes().finish(milliseconds(20'000))) {
      EXPECT_EQ(result.status, generation < 3 ? 128 + SIGKILL : 0) << result.output;
    }
  }
}

}  // namespace
}  // namespace tessera::test
