#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/process/fault_work.h"
#include "comm/process/gloo_ranks.h"

// What becomes of ranks between which the network is cut: in network namespaces of their own.

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

/// The exit code of a process that may not have a network of its own.
constexpr int kNotAllowed = 77;

/// Switches the loopback interface of this process's network on or off.
bool switch_loopback(bool on) {
  const int handle = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = static_cast<short>(on ? IFF_UP | IFF_RUNNING : 0);
  const bool done = ioctl(handle, SIOCSIFFLAGS, &request) == 0;
  close(handle);
  return done;
}

/// Gives this process a network of its own; as an ordinary user, in a user namespace.
bool leave_network() {
  const uid_t user = getuid();
  if (unshare(CLONE_NEWNET) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    std::ofstream("/proc/self/uid_map") << user << ' ' << user << " 1";
  }
  return switch_loopback(true);
}

/// Starts a job, cuts its network at a random moment of its work, and looks at how it ends.
int cut_network_of_a_job(std::mt19937 random) {
  if (!leave_network()) return kNotAllowed;
  GlooJob job(3, work_forever, short_options(), Exit::at_once);
  Processes& processes = job.processes();
  if (!processes.wait_for_output("ready", milliseconds(20'000))) return 1;
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
  EXPECT_TRUE(switch_loopback(false));
  const auto results = processes.finish(processes.since_begin() + milliseconds(10'000));
  for (const auto& result : results) {
    EXPECT_FALSE(result.overdue) << outputs_of(results);
    EXPECT_EQ(result.status, 1) << outputs_of(results);
    EXPECT_THAT(result.output,
                AllOf(HasSubstr(" on group world, rank "), HasSubstr("the time limit is 2000 ms")));
    EXPECT_LE(noticed_after(result), kThrownInTime) << outputs_of(results);
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(GlooNetworkTest, ACutIsAnErrorOnAllRanksAfterTheTimeLimit) {
  constexpr int kCuts = 40;
  // Most of the time they wait.
  constexpr int kAtATime = 10;
  for (int cut = 0; cut < kCuts; cut += kAtATime) {
    Processes jobs(kAtATime, [&](std::int64_t i) {
      end_at_once(cut_network_of_a_job(std::mt19937(static_cast<unsigned>(cut + i))));
      return 0;
    });
    const auto results = jobs.finish(milliseconds(60'000));
    for (const auto& result : results) {
      if (result.status == kNotAllowed) GTEST_SKIP() << "no network namespaces here";
      EXPECT_EQ(result.status, 0) << outputs_of(results);
    }
  }
}

}  // namespace
}  // namespace tessera::test
