#include "tessera/comm/c10d/deadlock.h"

#include <algorithm>
#include <cstdlib>

#include "tessera/base/check.h"
#include "tessera/base/concat.h"
#include "tessera/comm/wait_circle.h"

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
  const auto& others = statuses[static_cast<std::size_t>(other)];
  if (!others || others->kind != RankStatus::Kind::waiting) return false;
  const auto made = calls_on(others->calls, awaited.key);
  return made && *made < awaited.number;
}

/// Whom a rank waits for, of those that said that they wait.
std::vector<std::int64_t> awaited_by(Statuses statuses, std::int64_t rank) {
  std::vector<std::int64_t> awaited;
  for (std::int64_t other = 0; other < std::ssize(statuses); ++other) {
    if (waits_for(statuses, rank, other)) awaited.push_back(other);
  }
  return awaited;
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
  const auto circle =
      find_wait_circle(rank, [&](std::int64_t waiting) { return awaited_by(statuses, waiting); });
  if (circle.empty()) return std::nullopt;
  Deadlock deadlock;
  for (const auto each : circle) deadlock.waits.emplace_back(each, status_of(statuses, each).wait);
  deadlock.text = describe_wait_circle(circle, [&](std::int64_t each) {
    const RankStatus& status = status_of(statuses, each);
    return WaitingCall{status.call, status.group};
  });
  return deadlock;
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
