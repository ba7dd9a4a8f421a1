#include "tessera/comm/traffic.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "tessera/base/check.h"
#include "tessera/base/json_writer.h"
#include "tessera/base/units.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/process_clock.h"
#include "tessera/comm/recorder.h"

namespace tessera {
namespace {

/// Records of one name, group and cause, added up.
struct Row {
  const CommRecord* first = nullptr;
  std::int64_t count = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t received_bytes = 0;
  std::chrono::nanoseconds time{0};

  void add(const CommRecord& record) {
    ++count;
    sent_bytes += record.sent_bytes;
    received_bytes += record.received_bytes;
    time += record.duration;
  }
};

struct Summary {
  /// In the order in which they first occur.
  std::vector<Row> rows;
  Row total;

  explicit Summary(const std::vector<CommRecord>& records) {
    for (const auto& record : records) {
      const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
        return row.first->name == record.name && row.first->group == record.group &&
               row.first->cause == record.cause;
      });
      Row& row = found != rows.end() ? *found : rows.emplace_back(Row{.first = &record});
      row.add(record);
      total.add(record);
    }
  }
};

using Cells = std::vector<std::string>;
constexpr std::size_t kTextColumns = 3;

Cells numbers_of(const Row& row) {
  return {std::to_string(row.count), format_bytes(row.sent_bytes), format_bytes(row.received_bytes),
          format_picoseconds(row.time.count() * 1000)};
}

Cells cells_of(Cells cells, const Row& row) {
  for (auto& number : numbers_of(row)) cells.push_back(std::move(number));
  return cells;
}

/// Prints text to the left and numbers to the right of columns as wide as their widest cell.
std::string aligned(const std::vector<Cells>& lines) {
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string padding(widths[i] - line[i].size(), ' ');
      text += i < kTextColumns ? line[i] + padding : padding + line[i];
      text += i + 1 < line.size() ? "  " : "\n";
    }
  }
  return text;
}

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
  return Summary(records()).total.received_bytes;
}

std::int64_t CommDebugMode::sent_bytes() const { return Summary(records()).total.sent_bytes; }

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

std::string CommDebugMode::table() const { return table(records()); }

std::string CommDebugMode::table(const std::vector<CommRecord>& records) {
  const Summary summary(records);
  std::vector<Cells> lines = {
      {"collective", "group", "cause", "count", "sent", "received", "time"}};
  for (const auto& row : summary.rows) {
    lines.push_back(cells_of({row.first->name, row.first->group, row.first->cause}, row));
  }
  lines.push_back(cells_of({"total", "", ""}, summary.total));
  return aligned(lines);
}

std::string CommDebugMode::json() const { return json(records()); }

std::string CommDebugMode::json(const std::vector<CommRecord>& records) {
  const Summary summary(records);
  detail::JsonWriter json;
  const auto add_numbers = [&](const Row& row) {
    json.member("count", row.count)
        .member("sent_bytes", row.sent_bytes)
        .member("received_bytes", row.received_bytes)
        .member("time_ns", std::int64_t{row.time.count()});
  };
  json.begin_object().key("collectives").begin_array();
  for (const auto& row : summary.rows) {
    json.begin_object()
        .member("name", row.first->name)
        .member("group", row.first->group)
        .member("cause", row.first->cause);
    add_numbers(row);
    json.end_object();
  }
  json.end_array().key("total").begin_object();
  add_numbers(summary.total);
  return json.end_object().end_object().text();
}

}  // namespace tessera
