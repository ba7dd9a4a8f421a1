#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/group.h"
#include "tessera/comm/traffic.h"

namespace tessera::detail {

/// What a `CommDebugMode` has recorded.
struct TrafficLog {
  std::vector<CommRecord> records;
  /// Grows each time that the records are forgotten.
  std::uint64_t generation = 0;
};

/// Says, while alive, what the calling thread's communication is for; the outermost one counts. Costs
/// a thread-local test when nobody records.
class CauseScope {
 public:
  explicit CauseScope(std::string_view cause) : is_set_(is_wanted()) {
    if (is_set_) set(std::string(cause));
  }
  /// The same for a text that is made by `describe()`, and only when somebody records.
  template <std::invocable Describe>
  explicit CauseScope(const Describe& describe) : is_set_(is_wanted()) {
    if (is_set_) set(describe());
  }
  ~CauseScope() {
    if (is_set_) set({});
  }
  CauseScope(const CauseScope&) = delete;
  CauseScope& operator=(const CauseScope&) = delete;

 private:
  /// True when the calling thread records and no cause is set.
  [[nodiscard]] static bool is_wanted();
  static void set(std::string cause);

  bool is_set_;
};

/// Keeps the calling thread's communication from being recorded while alive.
class RecordingPause {
 public:
  RecordingPause();
  ~RecordingPause();
  RecordingPause(const RecordingPause&) = delete;
  RecordingPause& operator=(const RecordingPause&) = delete;
};

/// Records one communication into all `CommDebugMode` scopes that the calling thread has open: made
/// before, destroyed after it, which may be after the scopes have ended. Costs a thread-local test when
/// nobody records.
class CommRecorder {
 public:
  using Clock = std::chrono::steady_clock;

  CommRecorder(const char* name, const Group& group, std::int64_t sent_bytes,
               std::int64_t received_bytes, Clock::time_point begin = Clock::now());
  ~CommRecorder();
  CommRecorder(const CommRecorder&) = delete;
  CommRecorder& operator=(const CommRecorder&) = delete;

 private:
  struct Entry {
    std::shared_ptr<TrafficLog> log;
    std::uint64_t generation;
    std::size_t index;
  };

  Clock::time_point begin_;
  /// Those that were on their way before; one more ends the call.
  int exceptions_ = std::uncaught_exceptions();
  std::vector<Entry> entries_;
};

}  // namespace tessera::detail
