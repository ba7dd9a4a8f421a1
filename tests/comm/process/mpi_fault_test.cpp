#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <regex>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "comm/process/ending_cases.h"
#include "comm/process/mpi_job.h"
#include "tessera/base/concat.h"

// What becomes of the ranks of an MPI job of which one ends or does not come. That `mpirun` ends is not
// enough: nobody may be left.

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// The time limit of these jobs, two seconds, and one more: the last moment to throw.
constexpr milliseconds kLimit{2000};
constexpr milliseconds kThrownInTime{3000};

/// Lets the survivors live, so that they find out for themselves; mpirun then always ends with 0. By
/// default it kills them at once, names the rank and ends with an error.
const std::vector<std::string> kRecovery = {"--enable-recovery"};

/// How long a rank had waited when it threw something with these words; nothing when it has not.
std::optional<milliseconds> thrown_after(const ProcessResult& result, std::size_t rank,
                                         const std::string& beginning, const std::string& words) {
  const std::regex said(
      concat("rank ", rank, " threw: ", beginning, "[^\n]*, after ([0-9]+) ms: ", "[^\n]*", words));
  std::smatch found;
  if (!std::regex_search(result.output, found, said)) return std::nullopt;
  return milliseconds(std::stoi(found[1]));
}

/// Expects a rank to have thrown that in time, and returns when.
milliseconds expect_thrown(const ProcessResult& result, std::size_t rank, const std::string& words,
                           milliseconds limit = kThrownInTime, const std::string& beginning = "") {
  const auto after = thrown_after(result, rank, beginning, words);
  EXPECT_TRUE(after) << "rank " << rank << " did not say: " << words << '\n' << result.output;
  if (after) {
    EXPECT_LE(*after, limit) << result.output;
  }
  return after.value_or(milliseconds(0));
}

/// True while a process of that id runs this test's program for ranks.
bool is_rank(pid_t pid) {
  static const auto program = std::filesystem::canonical(TESSERA_MPI_RANKS);
  std::error_code ignored;
  return std::filesystem::read_symlink(concat("/proc/", pid, "/exe"), ignored) == program;
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

/// Expects these ranks to end by themselves, and sees to it that they do.
void expect_nobody_left(const std::vector<pid_t>& pids) {
  for (const auto pid : pids) {
    const bool ended = ends_soon(pid);
    EXPECT_TRUE(ended) << "rank's process " << pid << " is left";
    if (!ended) kill(pid, SIGKILL);
  }
}

/// Now and then the death of a rank upsets mpirun itself, which then neither ends nor passes on what the
/// ranks print. That says nothing about the ranks, which must end all the same.
class Retries {
 public:
  /// True when that has become of a job, which then is to be run again. Expects it to be seldom.
  bool are_needed(const ProcessResult& result, const std::vector<pid_t>& pids) {
    if (!result.overdue || result.output.find("PMIX ERROR") == std::string::npos) return false;
    expect_nobody_left(pids);
    constexpr int kMost = 3;
    EXPECT_LE(++count_, kMost) << "mpirun breaks too often\n" << result.output;
    return count_ <= kMost;
  }

 private:
  int count_ = 0;
};

std::unique_ptr<MpiJob> start_ending(const std::vector<EndingCase>& cases, std::size_t number) {
  return std::make_unique<MpiJob>(3, concat("ends ", number),
                                  cases[number].is_sudden ? kRecovery : std::vector<std::string>());
}

TEST(MpiFaultTest, SurvivorsNameARankThatEndsInWhateverTheyWait) {
  constexpr std::size_t kAtATime = 4;
  constexpr milliseconds kLongBeforeTheLimit{10'000};
  const auto cases = all_ending_cases();
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].call % kWaysToEnd == cases[i].way) chosen.push_back(i);
  }
  Retries retries;
  for (std::size_t first = 0; first < chosen.size() && !HasFailure(); first += kAtATime) {
    std::vector<std::unique_ptr<MpiJob>> jobs;
    const std::size_t end = std::min(first + kAtATime, chosen.size());
    for (std::size_t i = first; i < end; ++i) jobs.push_back(start_ending(cases, chosen[i]));
    for (std::size_t i = first; i < end; ++i) {
      const EndingCase& ending = cases[chosen[i]];
      auto& job = jobs[i - first];
      auto result = job->finish();
      while (retries.are_needed(result, job->pids())) {
        job = start_ending(cases, chosen[i]);
        result = job->finish();
      }
      SCOPED_TRACE(concat(ending.name, '\n', result.output));
      for (const std::size_t rank : {0, 2}) {
        (void)expect_thrown(result, rank, concat("rank 1 ", ending.words), kLongBeforeTheLimit,
                            ending.beginning);
      }
      EXPECT_FALSE(result.overdue);
      if (!ending.is_sudden) {
        EXPECT_NE(result.status, 0);
      }
      EXPECT_EQ(job->pids().size(), 3U);
      expect_nobody_left(job->pids());
    }
  }
}

TEST(MpiFaultTest, SurvivorsNameARankThatDoesNotCome) {
  MpiJob never_comes(3, "never_comes");
  MpiJob never_connects(3, "never_connects");
  const auto waited = never_comes.finish();
  milliseconds longest{0};
  for (const std::size_t rank : {0, 2}) {
    const auto after = expect_thrown(
        waited, rank, "rank 1 did not come .process [0-9]+ on [^ ]+ is running.; the time limit",
        kThrownInTime, "all_reduce on group world");
    longest = std::max(longest, after);
  }
  // The first to give up tells the other, which may have come later and then has waited for less.
  EXPECT_GE(longest, kLimit) << waited.output;
  const auto connected = never_connects.finish();
  for (const std::size_t rank : {0, 2}) {
    (void)expect_thrown(connected, rank, "rank 1 did not come");
  }
  for (const auto& result : {waited, connected}) {
    EXPECT_NE(result.status, 0) << result.output;
    EXPECT_FALSE(result.overdue) << result.output;
  }
}

TEST(MpiFaultTest, ByDefaultMpirunEndsTheSurvivors) {
  MpiJob jobs[] = {MpiJob(3, "exits"), MpiJob(3, "kills_itself")};
  for (auto& job : jobs) {
    const auto result = job.finish();
    EXPECT_NE(result.status, 0) << result.output;
    EXPECT_FALSE(result.overdue) << result.output;
    ASSERT_EQ(job.pids().size(), 3U) << result.output;
    expect_nobody_left(job.pids());
  }
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
  after.pids = job.wait_until_ready();
  if (after.pids.empty()) {
    after.result = job.finish(milliseconds(0));
    return after;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
  after.victim = random() % 3;
  for (const auto pid : after.pids) EXPECT_TRUE(is_rank(pid));
  kill(after.pids[after.victim], SIGKILL);
  const auto gone_at = job.processes().since_begin();
  after.result = job.finish(gone_at + milliseconds(8000));
  return after;
}

std::unique_ptr<MpiJob> job_to_be_killed(bool survives) {
  return std::make_unique<MpiJob>(3, "work", survives ? kRecovery : std::vector<std::string>());
}

TEST(MpiFaultTest, KillingARankEndsTheJobAndLeavesNobody) {
  constexpr int kKills = 10;
  std::mt19937 random(11);
  Retries retries;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    // Both kinds at a time: starting a job takes longer than the rest.
    std::unique_ptr<MpiJob> jobs[] = {job_to_be_killed(false), job_to_be_killed(true)};
    for (const bool survives : {false, true}) {
      AfterKill after = kill_one_of(*jobs[survives], random);
      while (retries.are_needed(after.result, after.pids)) {
        after = kill_one_of(*job_to_be_killed(survives), random);
      }
      SCOPED_TRACE(
          concat("kill ", kill_number, " of rank ", after.victim, '\n', after.result.output));
      ASSERT_EQ(after.pids.size(), 3U);
      EXPECT_FALSE(after.result.overdue);
      if (survives) {
        for (std::size_t rank = 0; rank < 3; ++rank) {
          if (rank == after.victim) continue;
          (void)expect_thrown(after.result, rank,
                              concat("rank ", after.victim, " is gone: process"));
        }
      } else {
        EXPECT_NE(after.result.status, 0);
        EXPECT_THAT(after.result.output, HasSubstr(concat("process rank ", after.victim)));
      }
      expect_nobody_left(after.pids);
    }
  }
}

}  // namespace
}  // namespace tessera::test
