// launch_probe WHAT [RANK]: does what it is told on one rank, while the others wait for it.
//
//     sum            nothing; every rank prints the sum of all ranks
//     throw RANK     that rank throws
//     kill RANK      that rank is killed by SIGKILL
//     exit RANK      that rank ends with exit code 7
//     work           every rank prints its process, and works until something fails
//     listeners      every rank prints the addresses that its process listens on
//     log            every rank logs at each level, from its own thread and from another

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include <unistd.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include "tessera/base/check.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/log.h"
#include "tessera/comm/world.h"

namespace tessera::test {
namespace {

void print(const std::string& line) { std::cout << line + '\n' << std::flush; }

void sum(const World& world) {
  const at::Tensor own = at::full({1}, world.rank(), at::kLong);
  const at::Tensor total = all_reduce(own, ReduceOp::sum, world.group());
  print(concat("rank ", world.rank(), " of ", world.size(), " by ", world.engine(), " sums up to ",
               total.item<std::int64_t>()));
}

/// The inodes of this process's sockets.
std::set<std::string> own_sockets() {
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    constexpr std::string_view kPrefix = "socket:[";
    if (target.starts_with(kPrefix)) {
      sockets.insert(target.substr(kPrefix.size(), target.size() - kPrefix.size() - 1));
    }
  }
  return sockets;
}

/// Prints `listens 0100007F:1234` for every listening socket of this process.
void print_listeners() {
  const auto sockets = own_sockets();
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retries >> user >>
          timeout >> inode;
      if (state == "0A" && sockets.contains(inode)) print("listens " + local);
    }
  }
}

void log_everything() {
  const auto log_all = [](const char* where) {
    for (const auto level : {LogLevel::error, LogLevel::warning, LogLevel::info, LogLevel::debug}) {
      log_message(level, "probe of ", log_level_name(level), " by ", where);
    }
  };
  log_all("the rank");
  std::thread(log_all, "another thread").join();
}

void work(const World& world) {
  print(concat("rank ", world.rank(), " is process ", getpid()));
  const at::Tensor own = at::full({1000}, world.rank(), at::kFloat);
  while (true) {
    (void)all_reduce(own, ReduceOp::sum, world.group());
    (void)all_gather(own, 0, world.group());
    barrier(world.group());
  }
}

void act(const std::string& what, World& world, std::int64_t culprit) {
  sum(world);
  if (what == "listeners") {
    print_listeners();
    sum(world);
  }
  if (what == "log") log_everything();
  if (what == "work") work(world);
  if (culprit < 0) return;
  if (world.rank() == culprit) {
    if (what == "throw") throw Error("planted failure");
    if (what == "kill") std::raise(SIGKILL);
    if (what == "exit") std::_Exit(7);
  }
  sum(world);
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  return tessera::launch(argc, argv, [&](tessera::World& world) {
    TESSERA_CHECK(argc == 2 || argc == 3, "launch_probe: ", argc - 1, " arguments are left");
    tessera::test::act(argv[1], world, argc == 3 ? std::atoll(argv[2]) : -1);
  });
}
