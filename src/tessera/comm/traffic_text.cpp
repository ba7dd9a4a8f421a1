#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/concat.h"
#include "tessera/base/json_writer.h"
#include "tessera/base/units.h"
#include "tessera/comm/traffic.h"

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

  void add(const CommRecord& record) {
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.first->name == record.name && row.first->group == record.group &&
             row.first->cause == record.cause;
    });
    Row& row = found != rows.end() ? *found : rows.emplace_back(Row{.first = &record});
    row.add(record);
    total.add(record);
  }
};

Summary summary_of(const std::vector<CommRecord>& records) {
  Summary summary;
  for (const auto& record : records) summary.add(record);
  return summary;
}

/// The same of each rank by itself.
std::map<std::int64_t, Summary> summaries_by_rank(const std::vector<CommRecord>& records) {
  std::map<std::int64_t, Summary> ranks;
  for (const auto& record : records) ranks[record.rank].add(record);
  return ranks;
}

/// How often each name occurs: `2 all_reduce, 1 barrier`, in the order in which they first do.
std::string calls_text(const Summary& summary) {
  std::vector<std::pair<std::string_view, std::int64_t>> counts;
  for (const auto& row : summary.rows) {
    const std::string_view name = row.first->name;
    auto found = std::find_if(counts.begin(), counts.end(),
                              [&](const auto& count) { return count.first == name; });
    if (found == counts.end()) found = counts.insert(found, {name, 0});
    found->second += row.count;
  }
  std::vector<std::string> texts;
  for (const auto& [name, count] : counts) texts.push_back(concat(count, ' ', name));
  return joined(texts);
}

using Cells = std::vector<std::string>;

/// Adds the numbers of a row to its first cells.
Cells with_numbers(Cells cells, const Row& row) {
  cells.push_back(std::to_string(row.count));
  cells.push_back(format_bytes(row.sent_bytes));
  cells.push_back(format_bytes(row.received_bytes));
  cells.push_back(format_picoseconds(row.time.count() * 1000));
  return cells;
}

/// Prints columns as wide as their widest cell. `sides` has a letter for each: `l` puts its cells to
/// the left, `r` to the right. Lines end with their last cell.
std::string aligned(const std::vector<Cells>& lines, std::string_view sides) {
  std::vector<std::size_t> widths(sides.size(), 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const bool is_last = i + 1 == line.size();
      const std::string padding(widths[i] - line[i].size(), ' ');
      if (sides[i] == 'r') text += padding;
      text += line[i];
      if (sides[i] == 'l' && !is_last) text += padding;
      text += is_last ? "\n" : "  ";
    }
  }
  return text;
}

std::string table_of_sums(const Summary& summary) {
  std::vector<Cells> lines = {
      {"collective", "group", "cause", "count", "sent", "received", "time"}};
  for (const auto& row : summary.rows) {
    lines.push_back(with_numbers({row.first->name, row.first->group, row.first->cause}, row));
  }
  lines.push_back(with_numbers({"total", "", ""}, summary.total));
  return aligned(lines, "lllrrrr");
}

/// One line for each rank, so that it stays readable when there are many.
std::string table_of_ranks(const std::map<std::int64_t, Summary>& ranks) {
  std::vector<Cells> lines = {{"rank", "count", "sent", "received", "time", "calls"}};
  for (const auto& [rank, summary] : ranks) {
    lines.push_back(with_numbers({std::to_string(rank)}, summary.total));
    lines.back().push_back(calls_text(summary));
  }
  return aligned(lines, "rrrrrl");
}

void write_numbers(detail::JsonWriter& json, const Row& row) {
  json.member("count", row.count)
      .member("sent_bytes", row.sent_bytes)
      .member("received_bytes", row.received_bytes)
      .member("time_ns", std::int64_t{row.time.count()});
}

void write_collectives(detail::JsonWriter& json, const Summary& summary) {
  json.key("collectives").begin_array();
  for (const auto& row : summary.rows) {
    json.begin_object()
        .member("name", row.first->name)
        .member("group", row.first->group)
        .member("cause", row.first->cause);
    write_numbers(json, row);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string CommDebugMode::table() const { return table(records()); }

std::string CommDebugMode::table(const std::vector<CommRecord>& records) {
  const auto ranks = summaries_by_rank(records);
  const std::string sums = table_of_sums(summary_of(records));
  return ranks.size() < 2 ? sums : concat(sums, '\n', table_of_ranks(ranks));
}

std::string CommDebugMode::json() const { return json(records()); }

std::string CommDebugMode::json(const std::vector<CommRecord>& records) {
  const Summary summary = summary_of(records);
  detail::JsonWriter json;
  json.begin_object();
  write_collectives(json, summary);
  json.key("total").begin_object();
  write_numbers(json, summary.total);
  json.end_object().key("ranks").begin_array();
  for (const auto& [rank, own] : summaries_by_rank(records)) {
    json.begin_object().member("rank", rank);
    write_numbers(json, own.total);
    write_collectives(json, own);
    json.end_object();
  }
  return json.end_array().end_object().text();
}

}  // namespace tessera
