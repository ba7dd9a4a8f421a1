#include <algorithm>
#include <fstream>
#include <set>

#include "tessera/base/check.h"
#include "tessera/base/json_writer.h"
#include "tessera/comm/traffic.h"

namespace tessera {
namespace {

double to_microseconds(std::chrono::nanoseconds time) {
  return static_cast<double>(time.count()) / 1000.0;
}

void add_rank(detail::JsonWriter& json, std::int64_t rank) {
  const std::string name = concat("rank ", rank);
  json.begin_object()
      .member("name", "process_name")
      .member("ph", "M")
      .member("pid", rank)
      .member("tid", std::int64_t{0})
      .key("args")
      .begin_object()
      .member("name", name)
      .end_object()
      .end_object();
}

void add_event(detail::JsonWriter& json, const CommRecord& record, std::int64_t track) {
  json.begin_object()
      .member("name", record.name)
      .member("cat", "comm")
      .member("ph", "X")
      .member("pid", record.rank)
      .member("tid", track)
      .member("ts", to_microseconds(record.begin))
      .member("dur", to_microseconds(record.duration))
      .key("args")
      .begin_object()
      .member("group", record.group)
      .member("cause", record.cause)
      .member("sent_bytes", record.sent_bytes)
      .member("received_bytes", record.received_bytes)
      .end_object()
      .end_object();
}

/// Gives each event of a rank the first track on which nothing else is going on: events of one track
/// must not overlap, which asynchronous ones do.
class Tracks {
 public:
  std::int64_t track_for(const CommRecord& record) {
    auto& ends = ends_[record.rank];
    const auto free = std::find_if(ends.begin(), ends.end(),
                                   [&](const auto& end) { return end <= record.begin; });
    const auto track = free - ends.begin();
    if (free == ends.end()) ends.emplace_back();
    ends[static_cast<std::size_t>(track)] = record.begin + record.duration;
    return track;
  }

 private:
  std::map<std::int64_t, std::vector<std::chrono::nanoseconds>> ends_;
};

}  // namespace

std::string chrome_trace(const std::vector<CommRecord>& records) {
  detail::JsonWriter json;
  json.begin_object().member("displayTimeUnit", "ns").key("traceEvents").begin_array();
  std::set<std::int64_t> ranks;
  for (const auto& record : records) ranks.insert(record.rank);
  for (const auto rank : ranks) add_rank(json, rank);
  Tracks tracks;
  for (const auto& record : records) add_event(json, record, tracks.track_for(record));
  return json.end_array().end_object().text();
}

void write_chrome_trace(const std::string& path, const std::vector<CommRecord>& records) {
  std::ofstream file(path);
  file << chrome_trace(records) << '\n';
  file.close();
  TESSERA_CHECK(file.good(), "write_chrome_trace: path \"", path,
                "\" given, which cannot be written; name a file in a folder that exists and is "
                "writable");
}

}  // namespace tessera
