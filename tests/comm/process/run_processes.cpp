#include "comm/process/run_processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::test {
namespace {

using Milliseconds = std::chrono::milliseconds;

Milliseconds since(Processes::Clock::time_point begin) {
  return std::chrono::duration_cast<Milliseconds>(Processes::Clock::now() - begin);
}

[[noreturn]] void throw_errno(const char* what) {
  throw std::runtime_error(std::string(what) + " failed with errno " + std::to_string(errno));
}

}  // namespace

Processes::Processes(std::int64_t count, const Body& body)
    : begin_(Clock::now()), children_(static_cast<std::size_t>(count)) {
  std::cout.flush();
  std::fflush(nullptr);
  for (std::size_t i = 0; i < children_.size(); ++i) {
    start(children_[i], static_cast<std::int64_t>(i), body);
  }
}

void Processes::start(Child& child, std::int64_t rank, const Body& body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("pipe");
  const pid_t parent = getpid();
  child.pid = fork();
  if (child.pid < 0) throw_errno("fork");
  if (child.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    // As a program's own main would end: with everything that runs at exit.
    std::exit(body(rank));
  }
  close(ends[1]);
  child.output = ends[0];
  fcntl(child.output, F_SETFL, O_NONBLOCK);
}

Processes::~Processes() {
  for (auto& child : children_) {
    if (child.running && child.pid > 0) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    if (child.output >= 0) close(child.output);
  }
}

void Processes::signal(std::int64_t rank, int signal) {
  const Child& child = children_[static_cast<std::size_t>(rank)];
  if (child.running) kill(child.pid, signal);
}

bool Processes::any_running() const {
  return std::any_of(children_.begin(), children_.end(), [](const Child& c) { return c.running; });
}

void Processes::collect(Child& child) {
  std::array<char, 4096> buffer{};
  ssize_t length = 0;
  while ((length = read(child.output, buffer.data(), buffer.size())) > 0) {
    child.result.output.append(buffer.data(), static_cast<std::size_t>(length));
  }
}

void Processes::poll(Milliseconds limit) {
  std::vector<pollfd> waiting;
  for (const auto& child : children_) {
    if (child.running) waiting.push_back({child.output, POLLIN, 0});
  }
  ::poll(waiting.data(), waiting.size(), static_cast<int>(limit.count()));
  for (auto& child : children_) {
    if (!child.running) continue;
    int status = 0;
    const bool ended = waitpid(child.pid, &status, WNOHANG) == child.pid;
    collect(child);
    if (!ended) continue;
    child.running = false;
    child.result.ended = since(begin_);
    constexpr int kSignalled = 128;
    child.result.status = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
  }
}

bool Processes::wait_for_output(const std::string& text, Milliseconds limit) {
  const auto has_text = [&](const Child& child) {
    return child.result.output.find(text) != std::string::npos;
  };
  const auto begin = Clock::now();
  while (since(begin) < limit && any_running()) {
    poll(Milliseconds(2));
    if (std::all_of(children_.begin(), children_.end(), has_text)) return true;
  }
  return false;
}

std::vector<ProcessResult> Processes::finish(Milliseconds limit) {
  while (any_running() && since(begin_) < limit) poll(Milliseconds(2));
  for (auto& child : children_) {
    if (!child.running) continue;
    child.result.overdue = true;
    kill(child.pid, SIGKILL);
  }
  while (any_running()) poll(Milliseconds(2));
  std::vector<ProcessResult> results;
  for (const auto& child : children_) results.push_back(child.result);
  return results;
}

void end_at_once(int code) {
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code);
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw_errno("mkdtemp");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::uint16_t find_free_port() {
  // The system gives others ports, for the near ends of their connections too, beyond these.
  constexpr unsigned kFirst = 10'000;
  constexpr unsigned kCount = 10'000;
  // Tests that run side by side begin far apart.
  static unsigned tried = static_cast<unsigned>(getpid()) * 7919U;
  for (unsigned attempt = 0; attempt < kCount; ++attempt) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(kFirst + ++tried % kCount));
    const int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int code = bind(handle, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    close(handle);
    if (code == 0) return ntohs(address.sin_port);
  }
  throw std::runtime_error("no port of loopback is free");
}

}  // namespace tessera::test
