#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/group.h"

namespace tessera {

namespace detail {
struct TrafficLog;
}

/// One communication of one rank, as `CommDebugMode` records it.
struct CommRecord {
  /// The c10d name: `all_reduce`, `all_gather_into_tensor`, `reduce_scatter_tensor`,
  /// `all_to_all_single`, `broadcast`, `scatter`, `gather`, `send`, `recv`, `barrier`, ...
  std::string name;
  std::string group;
  /// What it was done for: `redistribute [S(0)] -> [R]`, `aten::mm argument 1`, ...; empty when the
  /// program called it itself.
  std::string cause;
  std::int64_t rank = 0;
  /// What this rank sends and receives.
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;
  /// When it began, since the process did (in `gathered` records: since the first process did, by
  /// the hosts' clocks), and how long the rank took, waiting included: what is asynchronous lasts
  /// until it was waited for.
  std::chrono::nanoseconds begin{0};
  std::chrono::nanoseconds duration{0};
};

/// Counts the communication of the calling thread while a scope is open.
///
///     CommDebugMode traffic;
///     { auto scope = traffic.record(); ... }
///     traffic.total_count(), traffic.count("all_reduce"), std::cout << traffic.table();
///
/// Scopes nest: an inner one counts for the outer ones too. Each rank has its own; `gathered` collects
/// those of all ranks, whose `table` and `json` add them up and list each rank.
///
/// A backward pass over tensors on the CPU runs on the thread that calls `backward`, and counts there.
/// What a rank communicates on other threads is not counted, unless those record into one of their own:
/// threads that the program starts, and those on which libtorch runs backward passes over tensors of
/// other devices, and on the CPU backward passes that are more than 60 deep inside of one another. Not
/// thread-safe: belongs to one thread.
class CommDebugMode {
 public:
  /// Has recorded nothing yet.
  CommDebugMode();
  ~CommDebugMode();
  CommDebugMode(const CommDebugMode&) = delete;
  CommDebugMode& operator=(const CommDebugMode&) = delete;

  /// Records until the returned scope ends, adding to what was recorded before.
  class Scope;
  [[nodiscard]] Scope record();
  /// Forgets everything.
  void clear();

  /// What was recorded, in the order in which it began.
  [[nodiscard]] const std::vector<CommRecord>& records() const;
  [[nodiscard]] std::int64_t total_count() const;
  /// 0 for a name that did not occur.
  [[nodiscard]] std::int64_t count(std::string_view name) const;
  /// How often each name occurred.
  [[nodiscard]] std::map<std::string, std::int64_t> counts() const;
  /// What this rank received and sent in all.
  [[nodiscard]] std::int64_t received_bytes() const;
  [[nodiscard]] std::int64_t sent_bytes() const;

  /// The records of all members of a group, ordered by rank, with the beginnings on one scale, so
  /// that `chrome_trace` shows them side by side: exact for ranks of one process, and as good as the
  /// hosts' clocks otherwise. All members must call it; what it communicates is not recorded.
  [[nodiscard]] std::vector<CommRecord> gathered(const Group& group) const;

  /// A table for people: name, group, cause, count, bytes, time. Of given records, or of its own. Those
  /// of several ranks are added up, and a second table has a line for each rank: count, bytes, time, and
  /// how often each name occurred.
  [[nodiscard]] std::string table() const;
  [[nodiscard]] static std::string table(const std::vector<CommRecord>& records);
  /// The same as JSON: `collectives` and `total` of all records, and in `ranks` those of each rank.
  [[nodiscard]] std::string json() const;
  [[nodiscard]] static std::string json(const std::vector<CommRecord>& records);

 private:
  std::shared_ptr<detail::TrafficLog> log_;
};

/// Ends recording when it goes out of scope. Scopes end in the reverse order of their beginning.
class CommDebugMode::Scope {
 public:
  explicit Scope(std::shared_ptr<detail::TrafficLog> log);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::shared_ptr<detail::TrafficLog> log_;
};

/// Returns records as a Chrome trace (one process per rank), which Perfetto and chrome://tracing
/// open.
[[nodiscard]] std::string chrome_trace(const std::vector<CommRecord>& records);

/// Writes `chrome_trace` to a file. Throws `InvalidArgument` when that cannot be written.
void write_chrome_trace(const std::string& path, const std::vector<CommRecord>& records);

}  // namespace tessera
