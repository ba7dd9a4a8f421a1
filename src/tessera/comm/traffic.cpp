#include "tessera/comm/traffic.h"

#include <algorithm>
#include <cstring>

#include "tessera/base/check.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/process_clock.h"
#include "tessera/comm/recorder.h"

namespace tessera {
namespace {

/// Writes records as bytes to send to other ranks.
class RecordWriter {
 public:
  explicit RecordWriter(std::chrono::nanoseconds process_begin) {
    write(std::int64_t{process_begin.count()});
  }

  void write(const CommRecord& record) {
    for (const auto* text : {&record.name, &record.group, &record.cause}) {
      write(static_cast<std::int64_t>(text->size()));
      bytes_ += *text;
    }
    for (const auto number :
         {record.rank, record.sent_bytes, record.received_bytes, std::int64_t{record.begin.count()},
          std::int64_t{record.duration.count()}}) {
      write(number);
    }
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void write(std::int64_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }

  std::string bytes_;
};

class RecordReader {
 public:
  explicit RecordReader(const std::string& bytes) : bytes_(bytes), process_begin_(read_number()) {}

  /// Of the process that wrote the records.
  [[nodiscard]] std::chrono::nanoseconds process_begin() const { return process_begin_; }

  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }
  CommRecord read() {
    CommRecord record;
    for (auto* text : {&record.name, &record.group, &record.cause}) {
      const auto size = static_cast<std::size_t>(read_number());
      *text = bytes_.substr(at_, size);
      at_ += size;
    }
    record.rank = read_number();
    record.sent_bytes = read_number();
    record.received_bytes = read_number();
    record.begin = std::chrono::nanoseconds(read_number());
    record.duration = std::chrono::nanoseconds(read_number());
    return record;
  }

 private:
  std::int64_t read_number() {
    std::int64_t number = 0;
    TESSERA_INTERNAL_CHECK(bytes_.size() - at_ >= sizeof number, "a record ends early");
    std::memcpy(&number, bytes_.data() + at_, sizeof number);
    at_ += sizeof number;
    return number;
  }

  const std::string& bytes_;
  std::size_t at_ = 0;
  std::chrono::nanoseconds process_begin_;
};

}  // namespace

CommDebugMode::CommDebugMode() : log_(std::make_shared<detail::TrafficLog>()) {}

CommDebugMode::~CommDebugMode() = default;

CommDebugMode::Scope CommDebugMode::record() { return Scope(log_); }

void CommDebugMode::clear() {
  log_->records.clear();
  ++log_->generation;
}

const std::vector<CommRecord>& CommDebugMode::records() const { return log_->records; }

std::int64_t CommDebugMode::total_count() const {
  return static_cast<std::int64_t>(records().size());
}

std::int64_t CommDebugMode::count(std::string_view name) const {
  return std::count_if(records().begin(), records().end(),
                       [&](const CommRecord& record) { return record.name == name; });
}

std::map<std::string, std::int64_t> CommDebugMode::counts() const {
  std::map<std::string, std::int64_t> counts;
  for (const auto& record : records()) ++counts[record.name];
  return counts;
}

std::int64_t CommDebugMode::received_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& record : records()) bytes += record.received_bytes;
  return bytes;
}

std::int64_t CommDebugMode::sent_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& record : records()) bytes += record.sent_bytes;
  return bytes;
}

std::vector<CommRecord> CommDebugMode::gathered(const Group& group) const {
  RecordWriter writer(detail::process_begin_by_host());
  for (const auto& record : records()) writer.write(record);
  const detail::RecordingPause pause;
  const auto texts = all_gather_object(writer.bytes(), group);
  std::vector<RecordReader> readers(texts.begin(), texts.end());
  auto first = readers.front().process_begin();
  for (const auto& reader : readers) first = std::min(first, reader.process_begin());
  std::vector<CommRecord> all;
  for (auto& reader : readers) {
    while (!reader.at_end()) {
      all.push_back(reader.read());
      all.back().begin += reader.process_begin() - first;
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const CommRecord& a, const CommRecord& b) { return a.rank < b.rank; });
  return all;
}

}  // namespace tessera
