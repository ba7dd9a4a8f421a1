#include "run_signals.h"

#include <csignal>

#include <sys/signalfd.h>
#include <unistd.h>

#include "run_system.h"

namespace tessera::tools {

SignalReader::SignalReader() {
  // Who closes our output gets an error from us, not our death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);
  sigset_t ours;
  sigemptyset(&ours);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) {
    // Who starts us with a signal ignored (nohup, a shell in the background) means it.
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&ours, signal);
  }
  check_system(::sigprocmask(SIG_BLOCK, &ours, &previous_) != 0, "sigprocmask");
  descriptor_ = Descriptor(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  check_system(!descriptor_.is_open(), "signalfd");
}

SignalReader::~SignalReader() { ::sigprocmask(SIG_SETMASK, &previous_, nullptr); }

std::optional<int> SignalReader::read() {
  signalfd_siginfo info{};
  if (::read(descriptor(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace tessera::tools
