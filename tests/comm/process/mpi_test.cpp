#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <regex>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "comm/process/deadlock_cases.h"
#include "comm/process/run_processes.h"
#include "tessera/base/concat.h"

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// `mpirun -n SIZE mpi_ranks CASE [NUMBER]`, as a process of its own.
class MpiJob {
 public:
  MpiJob(int size, std::string name, std::vector<std::string> flags = {})
      : processes_(1, [=, this](std::int64_t) {
          // Open MPI keeps files there, in which several jobs can get into each other's way.
          setenv("TMPDIR", folder_.path().c_str(), 1);
          std::vector<std::string> words = {TESSERA_MPIEXEC,
                                            "--allow-run-as-root",
                                            "--oversubscribe",
                                            "--mca",
                                            "btl",
                                            "self,vader",
                                            "-n",
                                            concat(size)};
          words.insert(words.end(), flags.begin(), flags.end());
          words.push_back(TESSERA_MPI_RANKS);
          std::istringstream parts(name);
          for (std::string part; parts >> part;) words.push_back(part);
          std::vector<char*> arguments;
          for (auto& word : words) arguments.push_back(word.data());
          arguments.push_back(nullptr);
          execvp(arguments[0], arguments.data());
          return 127;
        }) {}

  [[nodiscard]] Processes& processes() { return processes_; }
  ProcessResult finish(milliseconds limit = milliseconds(60'000)) {
    return processes_.finish(limit)[0];
  }

  /// The process ids of the ranks, from what they print when they are ready.
  std::vector<pid_t> wait_until_ready(std::size_t size) {
    for (int attempt = 0; attempt < 3000; ++attempt) {
      (void)processes_.wait_for_output("\x01", milliseconds(10));
      const std::string output = processes_.output(0);
      static const std::regex kReady("ready, rank ([0-9]+) is process ([0-9]+)");
      std::vector<pid_t> pids(size, 0);
      std::size_t found = 0;
      for (std::sregex_iterator it(output.begin(), output.end(), kReady), end; it != end; ++it) {
        pids[std::stoul((*it)[1])] = std::stoi((*it)[2]);
        ++found;
      }
      if (found == size) return pids;
    }
    return {};
  }

 private:
  TemporaryFolder folder_;
  Processes processes_;
};

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
  constexpr std::size_t kAtATime = 8;
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

/// Expects ranks 0 and 2 to have said this, and the job to have failed.
void expect_survivors_say(const ProcessResult& result, const std::string& words) {
  for (const int rank : {0, 2}) {
    const std::regex said(concat("rank ", rank, " threw: [^\n]*", words));
    EXPECT_TRUE(std::regex_search(result.output, said)) << words << '\n' << result.output;
  }
  EXPECT_NE(result.status, 0) << result.output;
  EXPECT_FALSE(result.overdue) << result.output;
}

TEST(MpiTest, SurvivorsNameARankThatEndsOrDoesNotCome) {
  expect_survivors_say(MpiJob(3, "throws").finish(), "rank 1 failed: no more data");
  expect_survivors_say(MpiJob(3, "returns").finish(), "rank 1 has returned without calling it");
  const auto waited = MpiJob(3, "never_comes").finish();
  expect_survivors_say(waited,
                       "rank 1 did not come .process [0-9]+ on [^ ]+ is running.; the time limit");
  // Within the limit, two seconds, and one more.
  expect_survivors_say(waited, "all_reduce on group world, rank [02], after (2[0-9]{3}|3000) ms: ");
  expect_survivors_say(MpiJob(3, "never_connects").finish(), "rank 1 did not come");
}

/// Expects a rank to have thrown, within the time limit and a second, that another one is gone.
void expect_gone_in_time(const ProcessResult& result, std::size_t rank, std::size_t gone) {
  constexpr int kThrown = 3000;
  const std::regex said(concat("rank ", rank, " threw: [^\n]*, after ([0-9]+) ms: [^\n]*rank ",
                               gone, " is gone: process"));
  std::smatch found;
  ASSERT_TRUE(std::regex_search(result.output, found, said)) << result.output;
  EXPECT_LE(std::stoi(found[1]), kThrown) << result.output;
}

TEST(MpiTest, SurvivorsThatMpirunLetsLiveNameARankThatIsGone) {
  for (const char* name : {"exits", "kills_itself"}) {
    const auto result = MpiJob(3, name, {"--enable-recovery"}).finish();
    for (const int rank : {0, 2}) expect_gone_in_time(result, rank, 1);
    EXPECT_FALSE(result.overdue) << result.output;
    // Otherwise it ends them.
    const auto ended = MpiJob(3, name).finish();
    EXPECT_NE(ended.status, 0) << ended.output;
    EXPECT_FALSE(ended.overdue) << ended.output;
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

/// True while a process of that id runs this test's program for ranks.
bool is_rank(pid_t pid) {
  std::error_code ignored;
  return std::filesystem::read_symlink(concat("/proc/", pid, "/exe"), ignored) == TESSERA_MPI_RANKS;
}

/// True when it ends soon, as it should: not at mpirun's death, but at most a farewell later.
bool ends_soon(pid_t pid) {
  const auto deadline = Processes::Clock::now() + milliseconds(5000);
  while (is_rank(pid)) {
    if (Processes::Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

/// What is left of a job of three ranks after one of them was killed.
struct AfterKill {
  std::size_t victim = 0;
  std::vector<pid_t> pids;
  ProcessResult result;
};

/// Kills a random rank of the job at a random moment of its work.
AfterKill kill_one_of(MpiJob& job, std::mt19937& random) {
  AfterKill after;
  after.pids = job.wait_until_ready(3);
  if (after.pids.empty()) {
    after.result = job.finish(milliseconds(0));
    return after;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
  after.victim = random() % 3;
  kill(after.pids[after.victim], SIGKILL);
  const auto gone_at = job.processes().since_begin();
  after.result = job.finish(gone_at + milliseconds(8000));
  return after;
}

/// With recovery mpirun lets the survivors live, so that they find out for themselves; it then
/// always ends with 0. By default it kills them at once, names the rank and ends with an error.
std::unique_ptr<MpiJob> job_to_be_killed(bool survives) {
  return std::make_unique<MpiJob>(
      3, "work",
      survives ? std::vector<std::string>{"--enable-recovery"} : std::vector<std::string>{});
}

/// Now and then the death of a rank upsets mpirun itself, which then neither ends nor passes on
/// what the ranks print. That says nothing about the ranks.
bool broke_mpirun(const AfterKill& after) {
  return after.result.overdue && after.result.output.find("PMIX ERROR") != std::string::npos;
}

TEST(MpiTest, KillingARankEndsTheJobAndLeavesNobody) {
  constexpr int kKills = 10;
  std::mt19937 random(11);
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    // Both kinds at a time: starting a job takes longer than the rest.
    std::unique_ptr<MpiJob> jobs[] = {job_to_be_killed(false), job_to_be_killed(true)};
    for (const bool survives : {false, true}) {
      AfterKill after = kill_one_of(*jobs[survives], random);
      for (int again = 0; again < 2 && broke_mpirun(after); ++again) {
        after = kill_one_of(*job_to_be_killed(survives), random);
      }
      SCOPED_TRACE(
          concat("kill ", kill_number, " of rank ", after.victim, '\n', after.result.output));
      ASSERT_EQ(after.pids.size(), 3U);
      EXPECT_FALSE(after.result.overdue);
      if (survives) {
        for (std::size_t rank = 0; rank < 3; ++rank) {
          if (rank == after.victim) continue;
          expect_gone_in_time(after.result, rank, after.victim);
        }
      } else {
        EXPECT_NE(after.result.status, 0);
        EXPECT_THAT(after.result.output, HasSubstr(concat("process rank ", after.victim)));
      }
      for (const auto pid : after.pids) EXPECT_TRUE(ends_soon(pid)) << pid << " is left";
    }
  }
}

}  // namespace
}  // namespace tessera::test
