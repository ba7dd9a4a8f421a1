#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/concat.h"

namespace tessera {

/// How much a message matters; the first matters most.
enum class LogLevel : std::uint8_t { error, warning, info, debug };

/// Returns `error`, `warning`, `info` or `debug`.
[[nodiscard]] const char* log_level_name(LogLevel level);

/// Returns the level called `error`, `warning`, `info` or `debug`. Throws `InvalidArgument` for
/// another name.
[[nodiscard]] LogLevel parse_log_level(std::string_view name);

/// Messages up to this level are written. At first that of the environment variable `TESSERA_LOG`,
/// or `warning`.
[[nodiscard]] LogLevel log_level();
/// Writes messages up to `level` from now on.
void set_log_level(LogLevel level);

/// What is logged.
struct LogMessage {
  LogLevel level = LogLevel::info;
  /// The rank that says it; nothing outside of `launch` and `run_ranks`.
  std::optional<std::int64_t> rank;
  std::string text;
};

/// Returns the line that is written by default: `[rank 2] tessera info: text`.
[[nodiscard]] std::string to_string(const LogMessage& message);

/// Where messages go. Called by all ranks of the process, possibly at the same time. What it throws
/// is dropped.
using LogSink = std::function<void(const LogMessage& message)>;

/// Sends messages to `sink`, or to stderr again when it is empty.
void set_log_sink(LogSink sink);

namespace detail {

void write_log(LogLevel level, std::string text);

/// Sets the rank of threads that run no rank's function: those of a process that is a rank itself.
void set_log_rank(std::optional<std::int64_t> rank);

}  // namespace detail

/// Logs the parts, streamed one after the other: `log_message(LogLevel::info, "step ", step)`.
/// Costs a comparison when the level is not written.
template <typename... Parts>
void log_message(LogLevel level, const Parts&... parts) {
  if (level <= log_level()) detail::write_log(level, concat(parts...));
}

}  // namespace tessera
