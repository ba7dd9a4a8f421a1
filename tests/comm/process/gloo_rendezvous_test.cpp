#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/process/gloo_ranks.h"
#include "comm/process/transport_cases.h"
#include "tessera/base/concat.h"

namespace tessera::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// One process that asks to be a rank of a world.
struct Applicant {
  std::int64_t rank;
  std::int64_t size;
};

std::vector<ProcessResult> apply(const std::vector<Applicant>& applicants,
                                 const detail::Rendezvous& rendezvous,
                                 const WorldOptions& options = short_options()) {
  Processes processes(static_cast<std::int64_t>(applicants.size()), [&](std::int64_t i) {
    const Applicant& applicant = applicants[static_cast<std::size_t>(i)];
    return run_gloo_rank(applicant.rank, applicant.size, rendezvous, options,
                         [](World&) { std::cout << "in" << std::endl; });
  });
  return processes.finish(options.timeout + milliseconds(13'000));
}

void expect_all_say(const std::vector<ProcessResult>& results, const std::string& words) {
  for (const auto& result : results) {
    EXPECT_THAT(result.output, HasSubstr(words));
    EXPECT_EQ(result.status, 1);
    EXPECT_LT(result.ended, milliseconds(9000));
  }
}

TEST(GlooRendezvousTest, RanksMeetAtALoopbackPort) {
  const auto rendezvous = at_port(find_free_port());
  Processes processes(3, [&](std::int64_t rank) {
    return run_gloo_rank(rank, 3, rendezvous, patient_options(), [](World& world) {
      check_async(world.group());
      check_records(world.group({0, 1, 2}));
    });
  });
  for (const auto& result : processes.finish(milliseconds(60'000))) {
    EXPECT_EQ(result.status, 0) << result.output;
  }
}

TEST(GlooRendezvousTest, DifferentWorldSizesAreRefusedOnAllRanks) {
  // At once, so that it does not matter how long they would wait for others.
  const auto some = apply({{0, 3}, {1, 3}, {2, 4}}, at_port(find_free_port()), patient_options());
  expect_all_say(some, "launch: WORLD_SIZE=");
  const auto results = apply({{0, 2}, {1, 3}}, at_port(find_free_port()), patient_options());
  expect_all_say(results, "; give all ranks the same");
}

TEST(GlooRendezvousTest, ARankTakenTwiceIsRefusedOnAllRanks) {
  const auto results =
      apply({{0, 3}, {1, 3}, {1, 3}}, at_port(find_free_port()), patient_options());
  expect_all_say(results, "launch: RANK=1 given to process ");
  expect_all_say(results, "has this rank already; give every process its own");
}

TEST(GlooRendezvousTest, AMissingRankIsNamed) {
  for (const bool by_file : {false, true}) {
    const TemporaryFolder folder;
    auto rendezvous = at_port(find_free_port());
    if (by_file) rendezvous.file = folder.path() + "/store";
    expect_all_say(apply({{0, 4}, {2, 4}}, rendezvous), "ranks 1, 3 of WORLD_SIZE=4 did not come");
  }
}

TEST(GlooRendezvousTest, AMissingRankZeroIsNamed) {
  expect_all_say(apply({{1, 2}}, at_port(find_free_port())),
                 "nobody serves the rendezvous at MASTER_ADDR=127.0.0.1, MASTER_PORT=");
  auto derived = at_port(find_free_port());
  derived.address_origin = "as all ranks are on one host";
  derived.port_origin = "derived from SLURM_JOB_ID=77";
  expect_all_say(apply({{1, 2}}, derived),
                 concat("nobody serves the rendezvous at host 127.0.0.1 (as all ranks are on one "
                        "host), port ",
                        derived.port, " (derived from SLURM_JOB_ID=77): rank 0"));
}

TEST(GlooRendezvousTest, ABusyPortIsNamed) {
  const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(handle, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(handle, 4), 0);
  getsockname(handle, reinterpret_cast<sockaddr*>(&address), &length);
  const std::uint16_t port = ntohs(address.sin_port);
  const std::string reason =
      " cannot be used: another program uses that port of 127.0.0.1; set MASTER_PORT to a free "
      "one, "
      "alike on all ranks";
  expect_all_say(apply({{0, 2}}, at_port(port)), concat("launch: MASTER_PORT=", port, reason));
  auto derived = at_port(port);
  derived.port_origin = "derived from SLURM_JOB_ID=77";
  expect_all_say(apply({{0, 2}}, derived),
                 concat("launch: port ", port, " (derived from SLURM_JOB_ID=77)", reason));
  close(handle);
}

TEST(GlooRendezvousTest, BadValuesAreNamed) {
  auto rendezvous = at_port(find_free_port());
  expect_all_say(apply({{3, 3}}, rendezvous), "launch: RANK=3, WORLD_SIZE=3 given; ranks are");
  // No name at all, so that nobody is asked for it, who may take longer to answer than we wait.
  rendezvous.address = "no..such.host";
  expect_all_say(apply({{0, 2}}, rendezvous),
                 "launch: MASTER_ADDR=no..such.host cannot be used: no machine of that name is "
                 "known; set MASTER_ADDR to the name or address of rank 0's machine, alike on all "
                 "ranks");
  rendezvous.address = "192.0.2.1";
  expect_all_say(apply({{0, 2}}, rendezvous),
                 "launch: MASTER_ADDR=192.0.2.1 cannot be used: 192.0.2.1 is no address of the "
                 "machine that rank 0 runs on; set MASTER_ADDR");
  rendezvous.address_origin = "the first of SLURM_JOB_NODELIST=192.0.2.[1-2]";
  expect_all_say(apply({{0, 2}}, rendezvous),
                 "launch: host 192.0.2.1 (the first of SLURM_JOB_NODELIST=192.0.2.[1-2]) cannot be "
                 "used: 192.0.2.1 is no address of the");
  rendezvous.file = "/tmp/store";
  expect_all_say(apply({{0, 2}}, rendezvous), "in a folder that others may enter");
  rendezvous.file = "/no/such/folder/store";
  expect_all_say(apply({{0, 2}}, rendezvous), "its folder does not exist");
}

TEST(GlooRendezvousTest, ALeftOverFileIsNamed) {
  const TemporaryFolder folder;
  detail::Rendezvous rendezvous;
  rendezvous.file = folder.path() + "/store";
  EXPECT_EQ(apply({{0, 2}, {1, 2}}, rendezvous, patient_options())[0].status, 0);
  expect_all_say(apply({{0, 2}, {1, 2}}, rendezvous), "and every run a file that does not exist");
}

/// The local addresses on which this process listens, as /proc/net/tcp* has them.
std::vector<std::string> own_listeners() {
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const auto target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.rfind("socket:[", 0) == 0) sockets.insert(target.substr(8, target.size() - 9));
  }
  std::vector<std::string> listeners;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream table(path);
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream stream(line);
      const std::vector<std::string> fields{std::istream_iterator<std::string>(stream), {}};
      if (fields[3] == "0A" && sockets.contains(fields[9])) listeners.push_back(fields[1]);
    }
  }
  return listeners;
}

TEST(GlooRendezvousTest, NobodyListensBeyondLoopback) {
  for (const bool by_file : {false, true}) {
    const TemporaryFolder folder;
    auto rendezvous = at_port(find_free_port());
    if (by_file) rendezvous.file = folder.path() + "/store";
    Processes processes(3, [&](std::int64_t rank) {
      return run_gloo_rank(rank, 3, rendezvous, patient_options(), [](World& world) {
        check_async(world.group());
        const auto listeners = own_listeners();
        EXPECT_FALSE(listeners.empty());
        for (const auto& address : listeners) {
          EXPECT_EQ(address.substr(0, address.find(':')), "0100007F") << address;
        }
        check_async(world.group());
      });
    });
    for (const auto& result : processes.finish(milliseconds(60'000))) {
      EXPECT_EQ(result.status, 0) << result.output;
    }
  }
}

}  // namespace
}  // namespace tessera::test
