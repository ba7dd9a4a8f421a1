#include <gtest/gtest.h>

#include "comm/process/deadlock_cases.h"
#include "comm/process/sample_cases.h"
#include "comm/process/untouched_cases.h"
#include "tessera/comm/world.h"

namespace tessera::test {
namespace {

// The programs that gloo_calls_test and mpi_test run, on threads: what all engines get is what follows
// from the inputs, and so the same.
TEST(ThreadsSamplesTest, RandomCallsGiveWhatFollowsFromTheInputs) {
  for (const std::int64_t size : {2, 3, 4}) {
    SCOPED_TRACE(size);
    run_ranks(size, check_all_samples);
  }
}

TEST(ThreadsSamplesTest, NothingIsWrittenBeforeTheMembersAgree) {
  run_ranks(4, check_outputs_untouched);
}

TEST(ThreadsSamplesTest, RanksThatWaitForEachOtherAreTold) {
  const auto groups = all_group_pairs_of(4);
  const std::size_t cases = all_deadlocks().size() * kMismatchSeeds;
  for (std::size_t first = 0; first < cases && !HasFailure(); first += groups.size()) {
    run_ranks(4, [&](World&) { check_deadlocks(groups, first); });
  }
}

TEST(ThreadsSamplesTest, TwoThreadsOfARankCannotCommunicateAtTheSameTime) {
  run_ranks(3, check_two_threads);
}

}  // namespace
}  // namespace tessera::test
