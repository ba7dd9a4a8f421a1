#include "tessera/comm/c10d/peers.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "tessera/base/concat.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

}  // namespace

Peers::Peers(std::int64_t rank, std::vector<ProcessIdentity> processes,
             std::shared_ptr<StatusBoard> board)
    : rank_(rank), processes_(std::move(processes)), board_(std::move(board)) {}

const ProcessIdentity& Peers::process(std::int64_t rank) const {
  return processes_[static_cast<std::size_t>(rank)];
}

std::int64_t Peers::count_call(const std::string& group_key) {
  const std::lock_guard lock(mutex_);
  return ++calls_[group_key];
}

void Peers::post_failed(RankStatus status, const std::string& group_key) {
  const std::lock_guard lock(mutex_);
  if (!names_group(failed_groups_, group_key)) failed_groups_ += group_key;
  if (first_failure_.empty()) first_failure_ = status.reason;
  status.kind = RankStatus::Kind::failed;
  status.failed_groups = failed_groups_;
  board_->post(status);
}

void Peers::post_left(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  RankStatus status;
  status.kind = RankStatus::Kind::left;
  status.reason = reason;
  status.failed_groups = failed_groups_;
  for (const auto& [key, count] : calls_) status.calls += concat(key, '=', count, ';');
  board_->post(status);
}

void Peers::post_waiting(RankStatus status, const std::string& group_key, std::int64_t number) {
  const std::lock_guard lock(mutex_);
  status.kind = RankStatus::Kind::waiting;
  status.failed_groups = failed_groups_;
  if (number > 0) status.calls = concat(group_key, '=', number, ';');
  board_->post(status);
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

bool names_group(const std::string& failed_groups, const std::string& group_key) {
  return failed_groups.find(group_key) != std::string::npos;
}

std::int64_t calls_on(const std::string& calls, const std::string& group_key) {
  const std::string entry = concat(group_key, '=');
  const auto place = calls.find(entry);
  return place == std::string::npos ? 0 : std::atoll(calls.c_str() + place + entry.size());
}

}  // namespace tessera::detail
