#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "run_descriptor.h"

namespace tessera::tools {

/// How a process ended.
struct ProcessEnd {
  /// The exit code, when no signal ended it.
  int code = 0;
  int signal = 0;
  /// When we learned of it.
  std::chrono::system_clock::time_point when;

  [[nodiscard]] bool is_failure() const { return code != 0 || signal != 0; }
  /// `exit code 3` or `killed by signal 9 (SIGKILL)`.
  [[nodiscard]] std::string to_string() const;
  /// What a shell makes of it: 128 + the signal.
  [[nodiscard]] int shell_code() const { return signal != 0 ? 128 + signal : code; }
};

/// `signal 9 (SIGKILL)`.
[[nodiscard]] std::string signal_text(int signal);

/// The program cannot be executed.
struct CannotExecute {
  std::string program;
  int error = 0;
};

/// One rank's process, in a process group of its own. The system kills it when we die, and so does
/// the destructor, with the whole group.
class RankProcess {
 public:
  struct Start {
    std::vector<std::string> command;
    /// `NAME=value`.
    std::vector<std::string> environment;
    /// Its stdout and stderr.
    int output = -1;
    int errors = -1;
  };

  /// Returns when the program is running. Throws `CannotExecute`, or `Error`.
  explicit RankProcess(const Start& start);
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Sends a signal to the group.
  void send(int signal) const;
  /// Looks whether the process has ended; `now` is noted as the time then. It is kept as a zombie
  /// till the destructor, so that its number, and that of its group, stays ours.
  const std::optional<ProcessEnd>& look(std::chrono::system_clock::time_point now);
  [[nodiscard]] const std::optional<ProcessEnd>& end() const { return end_; }

 private:
  pid_t pid_ = -1;
  std::optional<ProcessEnd> end_;
};

}  // namespace tessera::tools
