#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace tessera::test {

/// What became of one process.
struct ProcessResult {
  /// The exit code, or 128 plus the signal that killed it, as shells have it.
  int status = 0;
  /// What it wrote to stdout and stderr.
  std::string output;
  /// When it ended, since the processes were started.
  std::chrono::milliseconds ended{0};
  /// Set when it had to be killed at the deadline.
  bool overdue = false;
};

/// Processes forked from this one, which must have no other threads. Whoever is left at the end of
/// the object is killed, by its id; if this process dies they die with it.
class Processes {
 public:
  using Clock = std::chrono::steady_clock;
  /// What a process does; returns its exit code.
  using Body = std::function<int(std::int64_t rank)>;

  Processes(std::int64_t count, const Body& body);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void signal(std::int64_t rank, int signal);
  [[nodiscard]] Clock::time_point begin() const { return begin_; }
  /// How long ago that was.
  [[nodiscard]] std::chrono::milliseconds since_begin() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_);
  }

  /// Reads what the processes write until `text` has come from all of them; false after the limit.
  bool wait_for_output(const std::string& text, std::chrono::milliseconds limit);
  /// What the process has written so far.
  [[nodiscard]] const std::string& output(std::int64_t rank) const {
    return children_[static_cast<std::size_t>(rank)].result.output;
  }
  /// Waits for all processes to end, and kills those that have not after `limit` from the start.
  [[nodiscard]] std::vector<ProcessResult> finish(std::chrono::milliseconds limit);

 private:
  struct Child {
    pid_t pid = -1;
    int output = -1;
    bool running = true;
    ProcessResult result;
  };

  void start(Child& child, std::int64_t rank, const Body& body);
  /// Takes in what there is to read and who has ended; waits for news at most so long.
  void poll(std::chrono::milliseconds limit);
  void collect(Child& child);
  [[nodiscard]] bool any_running() const;

  Clock::time_point begin_;
  std::vector<Child> children_;
};

/// Ends this process without what runs at exit. Taking libtorch apart is most of what a short one does.
[[noreturn]] void end_at_once(int code);

/// A folder of mode 0700 that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A TCP port of loopback that nobody uses at the moment, nor will by chance: the system hands out others.
[[nodiscard]] std::uint16_t find_free_port();

}  // namespace tessera::test
