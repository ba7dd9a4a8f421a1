#include "tessera/comm/log.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include <unistd.h>

#include "tessera/base/check.h"
#include "tessera/comm/world.h"

namespace tessera {
namespace {

constexpr int kUnset = -1;

std::atomic<int> current_level{kUnset};
std::atomic<std::int64_t> process_rank{kUnset};

std::mutex& sink_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::shared_ptr<const LogSink>& current_sink() {
  static std::shared_ptr<const LogSink> sink;
  return sink;
}

/// One call per line, so that lines of several ranks do not mix.
void write_to_stderr(const LogMessage& message) {
  const std::string line = to_string(message) + '\n';
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::write(STDERR_FILENO, line.data() + written, line.size() - written);
    if (count <= 0) return;
    written += static_cast<std::size_t>(count);
  }
}

std::optional<std::int64_t> rank_of_caller() {
  if (World::is_running()) return World::current().rank();
  const std::int64_t rank = process_rank;
  return rank == kUnset ? std::nullopt : std::optional(rank);
}

/// Sets the level for the first time. `launch` refuses a wrong TESSERA_LOG; who runs without it
/// gets a warning.
LogLevel read_level() {
  const char* name = std::getenv("TESSERA_LOG");
  auto level = LogLevel::warning;
  std::string complaint;
  try {
    if (name != nullptr && *name != '\0') level = parse_log_level(name);
  } catch (const InvalidArgument& error) {
    complaint = error.what();
  }
  int expected = kUnset;
  const bool is_first = current_level.compare_exchange_strong(expected, static_cast<int>(level));
  if (is_first && !complaint.empty()) detail::write_log(LogLevel::warning, std::move(complaint));
  return static_cast<LogLevel>(current_level.load());
}

}  // namespace

const char* log_level_name(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return "error";
    case LogLevel::warning:
      return "warning";
    case LogLevel::info:
      return "info";
    case LogLevel::debug:
      break;
  }
  return "debug";
}

LogLevel parse_log_level(std::string_view name) {
  for (const auto level : {LogLevel::error, LogLevel::warning, LogLevel::info, LogLevel::debug}) {
    if (name == log_level_name(level)) return level;
  }
  throw InvalidArgument(
      concat("TESSERA_LOG=", name, " given; error, warning, info or debug is expected"));
}

LogLevel log_level() {
  const int level = current_level;
  return level == kUnset ? read_level() : static_cast<LogLevel>(level);
}

void set_log_level(LogLevel level) { current_level = static_cast<int>(level); }

std::string to_string(const LogMessage& message) {
  const std::string rank = message.rank ? concat("[rank ", *message.rank, "] ") : "";
  return concat(rank, "tessera ", log_level_name(message.level), ": ", message.text);
}

void set_log_sink(LogSink sink) {
  auto replacement = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(sink_mutex());
  current_sink().swap(replacement);
}

namespace detail {

void write_log(LogLevel level, std::string text) {
  const LogMessage message{level, rank_of_caller(), std::move(text)};
  std::shared_ptr<const LogSink> sink;
  {
    const std::lock_guard lock(sink_mutex());
    sink = current_sink();
  }
  if (sink == nullptr) return write_to_stderr(message);
  try {
    (*sink)(message);
  } catch (...) {  // NOLINT(bugprone-empty-catch): a log that fails must not end the program.
  }
}

void set_log_rank(std::optional<std::int64_t> rank) { process_rank = rank.value_or(kUnset); }

}  // namespace detail
}  // namespace tessera
