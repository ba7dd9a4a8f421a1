#include "tessera/comm/recorder.h"

#include <algorithm>
#include <utility>

#include "tessera/comm/process_clock.h"

namespace tessera {
namespace detail {
namespace {

/// What the calling thread records into, the innermost scope last.
thread_local std::vector<std::shared_ptr<TrafficLog>> open_logs;
thread_local std::string current_cause;
thread_local int pauses = 0;

/// About when the process began: when the library was loaded.
const CommRecorder::Clock::time_point process_begin = CommRecorder::Clock::now();
const std::chrono::nanoseconds host_begin = std::chrono::system_clock::now().time_since_epoch();

}  // namespace

bool CauseScope::is_wanted() { return !open_logs.empty() && current_cause.empty(); }

void CauseScope::set(std::string cause) { current_cause = std::move(cause); }

RecordingPause::RecordingPause() { ++pauses; }

RecordingPause::~RecordingPause() { --pauses; }

std::chrono::nanoseconds process_begin_by_host() { return host_begin; }

CommRecorder::CommRecorder(const char* name, const Group& group, std::int64_t sent_bytes,
                           std::int64_t received_bytes, Clock::time_point begin)
    : begin_(begin) {
  if (open_logs.empty() || pauses > 0) return;
  CommRecord record;
  record.name = name;
  record.group = group.name();
  record.cause = current_cause;
  record.rank = group.ranks()[static_cast<std::size_t>(group.index())];
  record.sent_bytes = sent_bytes;
  record.received_bytes = received_bytes;
  record.begin = begin - process_begin;
  for (auto log = open_logs.begin(); log != open_logs.end(); ++log) {
    if (std::find(open_logs.begin(), log, *log) != log) continue;  // Opened twice, counts once.
    entries_.push_back({*log, (*log)->generation, (*log)->records.size()});
    (*log)->records.push_back(record);
  }
}

CommRecorder::~CommRecorder() {
  if (entries_.empty()) return;
  const auto duration = Clock::now() - begin_;
  // Whatever was on its way when an exception ended the call has not arrived anywhere.
  const bool has_failed = std::uncaught_exceptions() > exceptions_;
  for (const auto& entry : entries_) {
    if (entry.log->generation != entry.generation) continue;
    CommRecord& record = entry.log->records[entry.index];
    record.duration = duration;
    if (has_failed) record.sent_bytes = record.received_bytes = 0;
  }
}

}  // namespace detail

CommDebugMode::Scope::Scope(std::shared_ptr<detail::TrafficLog> log) : log_(std::move(log)) {
  detail::open_logs.push_back(log_);
}

CommDebugMode::Scope::~Scope() {
  // Scopes end in reverse order, so this is the last one unless the caller broke that rule.
  const auto last = std::find(detail::open_logs.rbegin(), detail::open_logs.rend(), log_);
  if (last != detail::open_logs.rend()) detail::open_logs.erase(std::next(last).base());
}

}  // namespace tessera
