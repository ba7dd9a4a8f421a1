#include <algorithm>
#include <fstream>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/process/deadlock_cases.h"
#include "comm/process/mpi_job.h"
#include "tessera/base/concat.h"

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST(MpiTest, MovesReducesAndComparesOnOneToFourRanks) {
  for (const int size : {1, 2, 3, 4}) {
    const auto result = MpiJob(size, "everything").finish();
    EXPECT_EQ(result.status, 0) << "size " << size << '\n' << result.output;
  }
}

TEST(MpiTest, GoesInPiecesWhatIsLongerThanMpiCanCount) {
  // Small ones into many pieces, large ones into some.
  const auto small = MpiJob(3, "moves", {"-x", "TESSERA_MPI_MOST_ELEMENTS=3"}).finish();
  EXPECT_EQ(small.status, 0) << small.output;
  const auto large = MpiJob(3, "everything", {"-x", "TESSERA_MPI_MOST_ELEMENTS=5000"}).finish();
  EXPECT_EQ(large.status, 0) << large.output;
}

/// In kB, or 0 where the system does not say.
std::int64_t available_memory() {
  std::int64_t available = 0;
  std::ifstream file("/proc/meminfo");
  for (std::string word; available == 0 && file >> word;) {
    if (word == "MemAvailable:") file >> available;
  }
  // A container may be allowed less than the machine has.
  std::int64_t allowed = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> allowed) {
    available = std::min(available, allowed / 1024);
  }
  return available;
}

TEST(MpiTest, MovesMoreElementsThanAnIntCanCount) {
  constexpr std::int64_t kNeeded = 11'000'000;
  if (available_memory() < kNeeded) GTEST_SKIP() << "takes 9 GB of memory";
  const auto result = MpiJob(2, "beyond_ints").finish(milliseconds(120'000));
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST(MpiTest, GroupsOfSomeRanksNumberTheirMembersInTheirOrder) {
  const auto result = MpiJob(4, "groups").finish();
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST(MpiTest, EveryMismatchIsFoundOnAllRanksBeforeDataMoves) {
  constexpr int kRanks = 6;
  const std::size_t at_a_time = all_groups_of(kRanks, 4).size();
  const std::size_t cases = all_mismatches().size() * kMismatchSeeds;
  for (std::size_t first = 0; first < cases; first += at_a_time) {
    // Takes 10 s; but MPI polls, and among busy strangers every look at it costs milliseconds.
    const auto result = MpiJob(kRanks, concat("mismatches ", first)).finish(milliseconds(120'000));
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_THAT(result.output, HasSubstr(concat("mismatches found on rank ", rank)));
    }
    EXPECT_FALSE(result.overdue);
    EXPECT_NE(result.status, 0) << "a failed group must end the job";
  }
}

TEST(MpiTest, NothingIsWrittenBeforeTheMembersAgree) {
  const auto result = MpiJob(4, "untouched").finish();
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_THAT(result.output, HasSubstr(concat("untouched found on rank ", rank)));
  }
}

TEST(MpiTest, TwoThreadsOfARankCannotCommunicateAtTheSameTime) {
  const auto result = MpiJob(3, "two_threads").finish();
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST(MpiTest, RanksThatWaitForEachOtherAreToldLongBeforeTheTimeLimit) {
  const std::size_t per_job = all_group_pairs_of(4).size();
  const std::size_t cases = all_deadlocks().size() * kMismatchSeeds;
  constexpr std::size_t kAtATime = 16;
  for (std::size_t first = 0; first < cases && !HasFailure();) {
    std::vector<std::unique_ptr<MpiJob>> jobs;
    for (; first < cases && jobs.size() < kAtATime; first += per_job) {
      jobs.push_back(std::make_unique<MpiJob>(4, concat("deadlocks ", first)));
    }
    for (const auto& job : jobs) {
      const auto result = job->finish(milliseconds(120'000));
      for (const int rank : {0, 1, 2, 3}) {
        EXPECT_THAT(result.output, HasSubstr(concat("deadlocks found on rank ", rank)));
      }
      EXPECT_NE(result.status, 0) << "a failed group must end the job";
    }
  }
}

TEST(MpiTest, RandomCallsGiveWhatFollowsFromTheInputs) {
  for (const int size : {2, 3, 4}) {
    const auto result = MpiJob(size, "samples").finish();
    EXPECT_EQ(result.status, 0) << "size " << size << '\n' << result.output;
  }
}

TEST(MpiTest, ASlowRankIsNotBlamed) {
  const auto result = MpiJob(3, "slow").finish();
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST(MpiTest, SlowRanksAreNotTakenForADeadlock) {
  MpiJob jobs[] = {MpiJob(4, "slow_on_groups 1"), MpiJob(4, "slow_on_groups 2")};
  for (auto& job : jobs) {
    const auto result = job.finish();
    EXPECT_EQ(result.status, 0) << result.output;
  }
}

TEST(MpiTest, AnOperationThatNobodyWaitsForDoesNoHarm) {
  const auto result = MpiJob(3, "forgets").finish();
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST(MpiTest, AResultMayOutliveItsWorld) {
  const auto result = MpiJob(3, "keeps").finish();
  EXPECT_EQ(result.status, 0) << result.output;
}

TEST(MpiTest, ErrorsOfMpiAreCommErrors) {
  const auto bad_root = MpiJob(2, "bad_root").finish();
  for (const int rank : {0, 1}) {
    EXPECT_THAT(bad_root.output, testing::ContainsRegex(concat(
                                     "rank ", rank, " threw: broadcast on group world, rank ", rank,
                                     ", after [^\n]*MPI_Ibcast: ")));
  }
  EXPECT_NE(bad_root.status, 0);
}

TEST(MpiTest, RedistributionsThatDifferAreFoundOnAllRanks) {
  // A failed group ends the job, so what the ranks expected counts by what they printed.
  for (const char* name : {"halves", "wrong_argument"}) {
    const auto result = MpiJob(4, name).finish();
    EXPECT_THAT(result.output, testing::Not(HasSubstr("Failure"))) << name;
    EXPECT_THAT(result.output, HasSubstr("ends the MPI job: ")) << name;
    EXPECT_NE(result.status, 0) << "a failed group must end the job";
  }
}

TEST(MpiTest, CallsOnDifferentGroupsAreNamed) {
  const auto result = MpiJob(3, "wrong_group").finish();
  for (const int rank : {0, 1}) {
    EXPECT_THAT(result.output,
                testing::ContainsRegex(
                    concat("rank ", rank,
                           " threw: [^\n]*, after [^\n ]* ms: deadlock, nobody can go on: rank "
                           "0 waits in connect\\(\\) on group world for rank 1; ")));
  }
  EXPECT_THAT(result.output, HasSubstr("rank 1 waits in all_reduce(float32[100] sum, round 1) on "
                                       "group pair for rank 0"));
  EXPECT_NE(result.status, 0);
}

}  // namespace
}  // namespace tessera::test
