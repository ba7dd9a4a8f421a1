#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::detail {

/// A process that other processes of the same machine can look up.
struct ProcessIdentity {
  std::string host;
  /// The machine and the namespace of process ids: equal where `pid` means the same process.
  std::uint64_t machine = 0;
  std::int64_t pid = 0;
  /// When it started, in clock ticks since the machine did: tells it from a later one with that
  /// pid.
  std::uint64_t start = 0;

  bool operator==(const ProcessIdentity&) const = default;

  /// `process 4711 on node3`.
  [[nodiscard]] std::string to_string() const;
};

/// What can be seen of a process; `unknown` on other machines.
enum class Liveness : std::uint8_t { running, stopped, ended, unknown };

[[nodiscard]] ProcessIdentity this_process();

/// Looks the process up in /proc. One that has ended but that its parent has not collected yet
/// counts as ended.
[[nodiscard]] Liveness liveness_of(const ProcessIdentity& process);

/// As one line without newlines, and back. Throws `InternalError` for other lines.
[[nodiscard]] std::string encode(const ProcessIdentity& process);
[[nodiscard]] ProcessIdentity decode_process(std::string_view line);

}  // namespace tessera::detail
