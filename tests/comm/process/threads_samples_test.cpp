#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::test
