#include "run_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_system.h"
#include "tessera/base/concat.h"
#include "tessera/base/error.h"

namespace tessera::tools {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (const auto& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

/// What the child has to do before it becomes the program, with the words for `exec` made by the
/// parent. Writes `errno` to `failure` when that does not work.
[[noreturn]] void become(char** command, char** environment, const RankProcess::Start& start,
                         pid_t parent, int failure) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // It died before we asked to follow it.
  for (const int signal : {SIGPIPE, SIGCHLD}) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (::dup2(input, STDIN_FILENO) >= 0 && ::dup2(start.output, STDOUT_FILENO) >= 0 &&
      ::dup2(start.errors, STDERR_FILENO) >= 0) {
    environ = environment;
    ::execvp(command[0], command);
  }
  const int error = errno;
  (void)!::write(failure, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? concat("signal ", signal)
                         : concat("signal ", signal, " (SIG", name, ')');
}

std::string ProcessEnd::to_string() const {
  return signal != 0 ? "killed by " + signal_text(signal) : concat("exit code ", code);
}

RankProcess::RankProcess(const Start& start) {
  const auto command = pointers(start.command);
  const auto environment = pointers(start.environment);
  auto [failure_reader, failure_writer] = make_pipe();
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  check_system(pid_ < 0, "fork");
  if (pid_ == 0) {
    become(const_cast<char**>(command.data()), const_cast<char**>(environment.data()), start,
           parent, failure_writer.number());
  }
  ::setpgid(pid_, pid_);  // Here too: a signal may have to be sent before the child comes to it.
  failure_writer.close();
  int error = 0;
  ssize_t count = 0;
  do {
    count = ::read(failure_reader.number(), &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  if (count != sizeof error) return;
  ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  throw CannotExecute{start.command.front(), error};
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), end_(other.end_) {}

RankProcess::~RankProcess() {
  if (pid_ < 0) return;
  send(SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void RankProcess::send(int signal) const { ::kill(-pid_, signal); }

const std::optional<ProcessEnd>& RankProcess::look(std::chrono::system_clock::time_point now) {
  if (end_) return end_;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return end_;
  if (info.si_pid == 0) return end_;
  end_.emplace();
  (info.si_code == CLD_EXITED ? end_->code : end_->signal) = info.si_status;
  end_->when = now;
  return end_;
}

}  // namespace tessera::tools
