#include "tessera/comm/c10d/store_board.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/concat.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// How often the store is asked at most.
constexpr Milliseconds kPollInterval{20};
/// How long the end of a world waits for the thread.
constexpr Milliseconds kPatience{200};
constexpr const char* kAlarm = "alarm";

std::string status_key(std::int64_t rank) { return concat("status/", rank); }

}  // namespace

/// Shared with the thread, which outlives the board when the store does not answer.
struct StoreBoard::State {
  using Statuses = std::vector<std::optional<RankStatus>>;

  std::unique_ptr<KeyStore> store;
  std::int64_t rank;
  std::string server;

  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable progress;
  std::deque<RankStatus> outgoing;
  bool wanted = false;
  bool wants_waiting = false;
  bool stop = false;
  bool ended = false;
  /// How many rounds have begun and are complete.
  std::uint64_t begun = 0;
  std::uint64_t completed = 0;
  Statuses statuses;
  std::string trouble;

  /// What one round found; owned by the thread.
  bool alarmed = false;

  /// Tells the store what was posted, and reads what the others posted; nothing when there is no
  /// need to. Called without the lock.
  std::optional<Statuses> exchange(const std::deque<RankStatus>& posts, bool reads_waiting) {
    for (const auto& status : posts) {
      store->set(status_key(rank), encode(status));
      if (status.kind != RankStatus::Kind::waiting) store->add(kAlarm, 1);
    }
    // While nobody raises the alarm, one question is enough.
    alarmed = alarmed || store->find(kAlarm).has_value();
    if (!alarmed && !reads_waiting) return std::nullopt;
    Statuses found(statuses.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (static_cast<std::int64_t>(i) == rank) continue;
      if (const auto text = store->find(status_key(static_cast<std::int64_t>(i)))) {
        found[i] = decode_status(*text);
      }
    }
    return found;
  }
};

StoreBoard::StoreBoard(std::unique_ptr<KeyStore> store, std::int64_t rank, std::int64_t size,
                       std::string server)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->rank = rank;
  state_->server = std::move(server);
  state_->statuses.resize(static_cast<std::size_t>(size));
  std::thread([state = state_] { serve(state); }).detach();
}

StoreBoard::~StoreBoard() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->wake.notify_all();
  // If the store does not answer the thread stays behind with the state that it shares.
  state_->progress.wait_for(lock, kPatience, [&] { return state_->ended; });
}

void StoreBoard::serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->wake.wait(lock,
                     [&] { return state->stop || state->wanted || !state->outgoing.empty(); });
    if (state->outgoing.empty() && state->stop) break;
    const auto posts = std::exchange(state->outgoing, {});
    state->wanted = false;
    const bool reads_waiting = std::exchange(state->wants_waiting, false);
    ++state->begun;
    lock.unlock();
    std::optional<State::Statuses> found;
    std::string trouble;
    try {
      found = state->exchange(posts, reads_waiting);
    } catch (const std::exception& error) {
      trouble = concat("the store that ", state->server, " serves cannot be reached");
    }
    lock.lock();
    if (!trouble.empty()) {
      state->trouble = trouble;
      break;
    }
    if (found) state->statuses = std::move(*found);
    ++state->completed;
    state->progress.notify_all();
    state->wake.wait_for(lock, kPollInterval,
                         [&] { return state->stop || !state->outgoing.empty(); });
  }
  state->ended = true;
  state->progress.notify_all();
}

void StoreBoard::post(const RankStatus& status) {
  const std::lock_guard lock(state_->mutex);
  state_->outgoing.push_back(status);
  state_->wake.notify_all();
}

std::optional<RankStatus> StoreBoard::latest(std::int64_t rank) {
  const std::lock_guard lock(state_->mutex);
  state_->wanted = true;
  state_->wake.notify_all();
  return state_->statuses[static_cast<std::size_t>(rank)];
}

void StoreBoard::call_roll() {
  const std::lock_guard lock(state_->mutex);
  state_->wanted = true;
  state_->wants_waiting = true;
  state_->wake.notify_all();
}

void StoreBoard::refresh(Milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  // A round that has begun already may have missed what is asked for.
  const std::uint64_t round = state_->begun + 1;
  state_->wanted = true;
  state_->wake.notify_all();
  state_->progress.wait_for(lock, limit,
                            [&] { return state_->completed >= round || state_->ended; });
}

std::string StoreBoard::trouble() {
  const std::lock_guard lock(state_->mutex);
  return state_->trouble;
}

}  // namespace tessera::detail
