#include "tessera/comm/c10d/deadlock.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "tessera/base/check.h"
#include "tessera/base/concat.h"

namespace tessera::detail {
namespace {

/// Between the waits and the text.
constexpr char kText = '|';

using Statuses = std::span<const std::optional<RankStatus>>;

const RankStatus& status_of(Statuses statuses, std::int64_t rank) {
  return *statuses[static_cast<std::size_t>(rank)];
}

/// Whether a rank said that it waits for a call that `other` had not made when it posted its own.
bool waits_for(Statuses statuses, std::int64_t rank, std::int64_t other) {
  const auto& status = statuses[static_cast<std::size_t>(rank)];
  if (rank == other || !status || status->kind != RankStatus::Kind::waiting) return false;
  const AwaitedCall& awaited = status->awaited;
  if (awaited.number == 0) return false;
  const auto& ranks = awaited.ranks;
  if (std::find(ranks.begin(), ranks.end(), other) == ranks.end()) return false;
  const auto made = calls_on(status_of(statuses, other).calls, awaited.key);
  return made && *made < awaited.number;
}

/// Whom each rank waits for, of those that wait for `rank` in the end.
std::map<std::int64_t, std::int64_t> collect_waiting(std::int64_t rank, Statuses statuses) {
  std::map<std::int64_t, std::int64_t> awaited_by;
  std::vector<std::int64_t> found = {rank};
  while (!found.empty()) {
    const std::int64_t awaited = found.back();
    found.pop_back();
    for (std::int64_t other = 0; other < std::ssize(statuses); ++other) {
      if (other == rank || awaited_by.contains(other)) continue;
      if (!waits_for(statuses, other, awaited)) continue;
      awaited_by[other] = awaited;
      found.push_back(other);
    }
  }
  return awaited_by;
}

std::string describe_wait(Statuses statuses, std::int64_t rank, std::int64_t awaited) {
  const RankStatus& status = status_of(statuses, rank);
  return concat("rank ", rank, " waits in ", status.call, " on group ", status.group, " for rank ",
                awaited);
}

Deadlock describe_circle(std::vector<std::int64_t> circle, Statuses statuses) {
  std::rotate(circle.begin(), std::min_element(circle.begin(), circle.end()), circle.end());
  Deadlock deadlock;
  std::vector<std::string> words;
  for (std::size_t i = 0; i < circle.size(); ++i) {
    deadlock.waits.emplace_back(circle[i], status_of(statuses, circle[i]).wait);
    words.push_back(describe_wait(statuses, circle[i], circle[(i + 1) % circle.size()]));
  }
  deadlock.text = concat("deadlock, nobody can go on: ", joined(words, "; "));
  return deadlock;
}

}  // namespace

bool Deadlock::concerns(std::int64_t rank, std::int64_t wait) const {
  return std::find(waits.begin(), waits.end(), std::pair(rank, wait)) != waits.end();
}

std::string encode(const Deadlock& deadlock) {
  std::string text;
  for (const auto& [rank, wait] : deadlock.waits) text += concat(rank, ':', wait, ',');
  return text + kText + deadlock.text;
}

std::optional<Deadlock> decode_deadlock(const std::string& text) {
  if (text.empty()) return std::nullopt;
  Deadlock deadlock;
  const char* next = text.c_str();
  while (*next != kText) {
    char* end = nullptr;
    const std::int64_t rank = std::strtoll(next, &end, 10);
    TESSERA_INTERNAL_CHECK(*end == ':', "deadlock '", text, "' cannot be read");
    const std::int64_t wait = std::strtoll(end + 1, &end, 10);
    TESSERA_INTERNAL_CHECK(*end == ',', "deadlock '", text, "' cannot be read");
    deadlock.waits.emplace_back(rank, wait);
    next = end + 1;
  }
  deadlock.text = next + 1;
  return deadlock;
}

std::optional<Deadlock> find_deadlock(std::int64_t rank, Statuses statuses) {
  const auto awaited_by = collect_waiting(rank, statuses);
  for (const auto& [other, awaited] : awaited_by) {
    if (!waits_for(statuses, rank, other)) continue;
    std::vector<std::int64_t> circle = {rank};
    for (std::int64_t next = other; next != rank; next = awaited_by.at(next)) {
      circle.push_back(next);
    }
    return describe_circle(std::move(circle), statuses);
  }
  return std::nullopt;
}

std::optional<std::int64_t> calls_on(const std::string& calls, const std::string& key) {
  const std::string entry = concat(key, '=');
  const auto place = calls.find(entry);
  if (place != std::string::npos) return std::atoll(calls.c_str() + place + entry.size());
  const bool is_message = key.back() != '}';
  if (is_message && calls.find(kUncounted) != std::string::npos) return std::nullopt;
  return 0;
}

}  // namespace tessera::detail
