#include "run_supervisor.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>

#include "run_environment.h"
#include "run_failure.h"
#include "run_output.h"
#include "run_process.h"
#include "run_signals.h"
#include "run_system.h"
#include "tessera/base/check.h"

namespace tessera::tools {
namespace {

using Clock = std::chrono::steady_clock;

/// How long we wait for the rest of the output when all ranks have ended: somebody who left their
/// process groups may hold it open.
constexpr std::chrono::milliseconds kDrainTime{500};

class Supervisor {
 public:
  explicit Supervisor(const RunArguments& arguments)
      : arguments_(arguments), size_(static_cast<std::size_t>(arguments.processes)) {}

  int run() {
    start();
    while (is_any_running()) {
      wait(next_deadline());
      take_signals();
      look_at_ranks();
      escalate();
    }
    drain();
    return conclude();
  }

 private:
  /// How far we have gone to end the ranks.
  enum class Stage { running, grace, terminated, killed };

  /// The rank's files are in a folder of its own, as torchrun's are.
  [[nodiscard]] std::string folder(std::size_t rank) const {
    return concat(arguments_.log_dir.empty() ? folder_.path() : arguments_.log_dir, '/', rank);
  }
  [[nodiscard]] std::string error_file(std::size_t rank) const {
    return folder(rank) + "/error.json";
  }

  /// The log file of that name; not open when none is asked for.
  [[nodiscard]] Descriptor make_log(std::size_t rank, const char* name) const;
  void start();
  void start_rank(std::size_t rank, std::uint16_t master_port);

  [[nodiscard]] bool is_any_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return !rank.end(); });
  }
  [[nodiscard]] std::optional<Clock::time_point> next_deadline() const;
  void wait(std::optional<Clock::time_point> deadline);
  void take_signals();
  void look_at_ranks();
  void escalate();
  void send_to_running(int signal);
  void drain();

  [[nodiscard]] std::optional<std::size_t> first_failure() const;
  [[nodiscard]] int conclude() const;
  [[nodiscard]] std::string stopped_text() const;

  const RunArguments& arguments_;
  std::size_t size_;
  TemporaryFolder folder_;
  SignalReader signals_;
  std::vector<OutputCopier> outputs_;
  std::vector<RankProcess> ranks_;

  Stage stage_ = Stage::running;
  std::optional<Clock::time_point> next_stage_;
  std::optional<Clock::time_point> timeout_;
  bool has_timed_out_ = false;
  /// The signal that asked us to stop, or 0.
  int stop_signal_ = 0;
  /// When the first signal was sent to the ranks; what they do afterwards is our doing.
  std::optional<std::chrono::system_clock::time_point> first_sent_;
  /// The ranks that were running then.
  std::vector<std::size_t> stopped_;
};

Descriptor Supervisor::make_log(std::size_t rank, const char* name) const {
  if (arguments_.log_dir.empty()) return {};
  const std::string path = concat(folder(rank), '/', name);
  Descriptor log(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  check_system(!log.is_open(), path.c_str());
  return log;
}

void Supervisor::start() {
  std::optional<HeldPort> port;
  if (!arguments_.master_port) port.emplace();
  for (std::size_t rank = 0; rank < size_; ++rank) {
    start_rank(rank, arguments_.master_port ? *arguments_.master_port : port->number());
  }
  if (arguments_.timeout) timeout_ = Clock::now() + *arguments_.timeout;
}

void Supervisor::start_rank(std::size_t rank, std::uint16_t master_port) {
  std::error_code error;
  std::filesystem::create_directories(folder(rank), error);
  TESSERA_CHECK(!error, "--log-dir: cannot make ", folder(rank), ": ", error.message());
  std::filesystem::remove(error_file(rank), error);
  auto [output_reader, output_writer] = make_pipe();
  auto [errors_reader, errors_writer] = make_pipe();
  outputs_.emplace_back(std::move(output_reader), STDOUT_FILENO, concat('[', rank, "] "),
                        make_log(rank, "stdout.log"));
  outputs_.emplace_back(std::move(errors_reader), STDERR_FILENO, concat('[', rank, "] "),
                        make_log(rank, "stderr.log"));
  const RankEnvironment environment{static_cast<std::int64_t>(rank), arguments_.processes,
                                    master_port, error_file(rank), folder_.path() + "/rendezvous"};
  ranks_.emplace_back(RankProcess::Start{arguments_.command, make_environment(environment),
                                         output_writer.number(), errors_writer.number()});
}

std::optional<Clock::time_point> Supervisor::next_deadline() const {
  return stage_ == Stage::running ? timeout_ : next_stage_;
}

/// Copies output till something else happens, or the deadline passes.
void Supervisor::wait(std::optional<Clock::time_point> deadline) {
  std::vector<pollfd> waited = {{signals_.descriptor(), POLLIN, 0}};
  for (const auto& output : outputs_) waited.push_back({output.source(), POLLIN, 0});
  int milliseconds = -1;
  if (deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    milliseconds = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
  }
  const int count = ::poll(waited.data(), waited.size(), milliseconds);
  check_system(count < 0 && errno != EINTR, "poll");
  for (std::size_t i = 0; count > 0 && i < outputs_.size(); ++i) {
    if (waited[i + 1].revents != 0) outputs_[i].copy_some();
  }
}

void Supervisor::take_signals() {
  const bool is_broken = std::any_of(outputs_.begin(), outputs_.end(),
                                     [](const auto& output) { return output.is_broken(); });
  // Who reads our output has gone: end as we would by SIGPIPE.
  if (is_broken && stop_signal_ == 0) {
    stop_signal_ = SIGPIPE;
    send_to_running(SIGTERM);
  }
  while (const auto signal = signals_.read()) {
    if (*signal == SIGCHLD) continue;
    // Asked twice, we do not wait any longer.
    send_to_running(stop_signal_ != 0 ? SIGKILL : *signal);
    if (stop_signal_ == 0) stop_signal_ = *signal;
  }
}

void Supervisor::look_at_ranks() {
  bool has_failed = false;
  const auto now = std::chrono::system_clock::now();
  for (auto& rank : ranks_) {
    const auto& end = rank.look(now);
    has_failed = has_failed || (end && end->is_failure());
  }
  if (!has_failed || stage_ != Stage::running) return;
  stage_ = Stage::grace;
  next_stage_ = Clock::now() + arguments_.grace;
}

void Supervisor::escalate() {
  const auto deadline = next_deadline();
  if (!deadline || Clock::now() < *deadline || !is_any_running()) return;
  has_timed_out_ = has_timed_out_ || stage_ == Stage::running;
  send_to_running(stage_ == Stage::terminated ? SIGKILL : SIGTERM);
}

/// Sends a signal that is to end the ranks.
void Supervisor::send_to_running(int signal) {
  const auto now = std::chrono::system_clock::now();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].look(now)) continue;
    if (!first_sent_) stopped_.push_back(rank);
    ranks_[rank].send(signal);
  }
  if (!first_sent_) first_sent_ = now;
  stage_ = signal == SIGKILL ? Stage::killed : Stage::terminated;
  next_stage_.reset();
  if (stage_ == Stage::terminated) next_stage_ = Clock::now() + arguments_.grace;
}

void Supervisor::drain() {
  // What the ranks have left behind in their groups.
  for (const auto& rank : ranks_) rank.send(SIGKILL);
  const auto deadline = Clock::now() + kDrainTime;
  const auto is_open = [](const auto& output) { return output.source() >= 0; };
  while (std::any_of(outputs_.begin(), outputs_.end(), is_open) && Clock::now() < deadline) {
    wait(deadline);
    (void)signals_.read();
  }
  for (auto& output : outputs_) output.finish();
}

/// The rank that failed first by itself. Ranks that say they failed because of another come last,
/// as a process may take longer to end than those who notice.
std::optional<std::size_t> Supervisor::first_failure() const {
  std::optional<std::size_t> first;
  std::tuple<bool, std::int64_t, bool> first_key;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto& end = ranks_[rank].end();
    if (!end || !end->is_failure()) continue;
    using std::chrono::nanoseconds;
    nanoseconds when = end->when.time_since_epoch();
    const auto report = read_failure_report(error_file(rank));
    if (report) when = nanoseconds(report->nanoseconds);
    if (first_sent_ && when > first_sent_->time_since_epoch()) continue;
    const std::tuple key(report && report->is_consequence, std::int64_t{when.count()},
                         end->signal == 0);
    if (first && first_key <= key) continue;
    first = rank;
    first_key = key;
  }
  return first;
}

std::string Supervisor::stopped_text() const {
  if (stopped_.empty()) return "";
  return concat("; stopped rank", stopped_.size() == 1 ? " " : "s ", joined(stopped_));
}

int Supervisor::conclude() const {
  const auto failed = first_failure();
  if (failed) {
    const auto& rank = ranks_[*failed];
    std::cerr << "tessera_run: rank " << *failed << " failed first: " << rank.end()->to_string()
              << ", pid " << rank.pid() << stopped_text() << '\n';
    return rank.end()->shell_code();
  }
  if (stop_signal_ != 0) {
    std::cerr << "tessera_run: ended by " << signal_text(stop_signal_) << stopped_text() << '\n';
    return 128 + stop_signal_;
  }
  if (has_timed_out_) {
    const std::chrono::duration<double> limit = *arguments_.timeout;
    std::cerr << "tessera_run: not finished after " << limit.count() << " s (--timeout)"
              << stopped_text() << '\n';
    return 124;
  }
  return 0;
}

}  // namespace

int run_ranks_as_processes(const RunArguments& arguments) { return Supervisor(arguments).run(); }

}  // namespace tessera::tools
