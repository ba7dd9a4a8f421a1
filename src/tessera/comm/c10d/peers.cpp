#include "tessera/comm/c10d/peers.h"

#include <algorithm>
#include <thread>

#include "tessera/base/concat.h"
#include "tessera/comm/c10d/agreement.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// What a rank posts should stay short; who uses many tags has the time limit.
constexpr std::size_t kMostKindsOfMessages = 256;

/// After so many calls news are taken in, should nobody wait long enough to look at them.
constexpr std::int64_t kCallsBetweenNews = 64;

/// Each rank asks after all others at most so often, all together not more than 20,000 times a second.
Milliseconds roll_interval(std::int64_t ranks) {
  return std::max(Milliseconds(200), Milliseconds(ranks * ranks / 20));
}

}  // namespace

Peers::Peers(std::int64_t rank, std::vector<ProcessIdentity> processes,
             std::shared_ptr<StatusBoard> board)
    : rank_(rank), processes_(std::move(processes)), board_(std::move(board)) {}

const ProcessIdentity& Peers::process(std::int64_t rank) const {
  return processes_[static_cast<std::size_t>(rank)];
}

std::int64_t Peers::count_call(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const std::int64_t number = ++calls_[key];
  if (number % kCallsBetweenNews == 0) board_->take_in();
  return number;
}

std::int64_t Peers::count_message(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = calls_.try_emplace(key, 0);
  if (is_new && kinds_of_messages_ == kMostKindsOfMessages) {
    calls_.erase(entry);
    calls_[kUncounted] = 1;
    return 0;
  }
  if (is_new) ++kinds_of_messages_;
  return ++entry->second;
}

RankStatus Peers::with_counts(RankStatus status) const {
  status.failed_groups = failed_groups_;
  status.deadlock = deadlock_;
  for (const auto& [key, count] : calls_) status.calls += concat(key, '=', count, ';');
  return status;
}

void Peers::post_failed(RankStatus status, const std::string& group_key) {
  const std::lock_guard lock(mutex_);
  if (!names_group(failed_groups_, group_key)) failed_groups_ += group_key;
  if (first_failure_.empty()) first_failure_ = status.reason;
  waiting_ = {};
  status.kind = RankStatus::Kind::failed;
  if (!has_left_) board_->post(with_counts(std::move(status)));
}

void Peers::post_left(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  RankStatus status;
  status.kind = RankStatus::Kind::left;
  status.reason = reason;
  has_left_ = true;
  board_->post(with_counts(std::move(status)));
}

Milliseconds Peers::suspicion() const {
  const std::lock_guard lock(mutex_);
  return suspicion_;
}

void Peers::post_waiting(RankStatus status) {
  const std::lock_guard lock(mutex_);
  status.kind = RankStatus::Kind::waiting;
  status.wait = ++waits_;
  waiting_ = with_counts(std::move(status));
  if (!has_left_) board_->post(waiting_);
}

void Peers::post_going_on() {
  constexpr Milliseconds kLongest = std::chrono::hours(1);
  const std::lock_guard lock(mutex_);
  suspicion_ = std::min(2 * suspicion_, kLongest);
  waiting_ = {};
  if (!has_left_) board_->post(with_counts({}));
}

std::vector<std::optional<RankStatus>> Peers::all_statuses() const {
  std::vector<std::optional<RankStatus>> all;
  for (std::int64_t rank = 0; rank < size(); ++rank) {
    all.push_back(rank == rank_ ? waiting_ : board_->latest(rank));
  }
  return all;
}

std::optional<std::string> Peers::find_deadlock() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now >= next_roll_) {
    next_roll_ = now + roll_interval(size());
    board_->call_roll();
  }
  const auto statuses = all_statuses();
  for (const auto& status : statuses) {
    if (!status) continue;
    const auto told = decode_deadlock(status->deadlock);
    if (told && told->concerns(rank_, waiting_.wait)) return note_deadlock(*told);
  }
  const auto found = detail::find_deadlock(rank_, statuses);
  return found ? std::optional(note_deadlock(*found)) : std::nullopt;
}

std::string Peers::note_deadlock(const Deadlock& deadlock) {
  deadlock_ = encode(deadlock);
  return deadlock.text;
}

std::string Peers::first_failure() const {
  const std::lock_guard lock(mutex_);
  return first_failure_;
}

void Peers::wait_until_alone(Milliseconds limit, Milliseconds unseen_limit) {
  const auto begin = Clock::now();
  const auto is_gone = [&](std::int64_t rank) {
    if (rank == rank_) return true;
    const Liveness liveness = liveness_of(process(rank));
    if (liveness == Liveness::ended) return true;
    if (liveness == Liveness::unknown && Clock::now() > begin + unseen_limit) return true;
    const auto status = board_->latest(rank);
    return status && status->kind == RankStatus::Kind::left;
  };
  std::int64_t next = 0;
  auto pause = Milliseconds(1);
  while (Clock::now() < begin + limit && board_->trouble().empty()) {
    while (next < size() && is_gone(next)) ++next;
    if (next == size()) return;
    board_->refresh(pause);
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, Milliseconds(50));
  }
}

std::string group_key(const std::vector<std::int64_t>& ranks) {
  constexpr std::size_t kShort = 16;
  const std::string all = joined(ranks, ",");
  if (ranks.size() <= kShort) return concat('{', all, '}');
  return concat('{', ranks.size(), " ranks, ", hash_text(all), '}');
}

bool names_group(const std::string& failed_groups, const std::string& group_key) {
  return failed_groups.find(group_key) != std::string::npos;
}

}  // namespace tessera::detail
