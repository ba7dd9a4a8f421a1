#include "tessera/comm/c10d/channel.h"

#include <exception>
#include <thread>
#include <utility>

#include "tessera/comm/waiting.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// How long a failed group's operations may take to notice, before the backend is left alone.
constexpr Milliseconds kPatience{200};

std::string words_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "unknown error";
  }
}

}  // namespace

Channel::Channel(c10::intrusive_ptr<c10d::Backend> backend, BackendTraits traits,
                 std::shared_ptr<GroupWatch> watch)
    : backend_(std::move(backend)), traits_(std::move(traits)), watch_(std::move(watch)) {}

Channel::~Channel() {
  const auto deadline = Clock::now() + kPatience;
  for (const auto& work : abandoned_) {
    while (!work->isCompleted() && Clock::now() < deadline) {
      std::this_thread::sleep_for(Milliseconds(5));
    }
    if (work->isCompleted()) continue;
    // Deliberately leaked: threads of the backend still use it, and its destructor would wait for
    // them as long as for the ranks that do not come.
    backend_.release();
    break;
  }
}

bool Channel::wait_once(c10d::Work& work, Milliseconds limit, std::string& error) {
  try {
    work.wait(limit);
    return true;
  } catch (const std::exception& thrown) {
    if (!work.isCompleted()) return false;
    // It may have completed after the time was up, so what was thrown need not be its error.
    if (const auto own = work.exception()) error = words_of(own);
    return true;
  }
}

void Channel::wait(const WatchedCall& call, const WorkPtr& work) {
  const Waiting waiting;
  const bool is_message = call.peer.has_value();
  const bool polls = is_message ? traits_.polls_messages : traits_.polls_collectives;
  const auto begin = Clock::now();
  if (!polls) {
    try {
      work->wait(watch_->timeout());
      return;
    } catch (const std::exception& error) {
      abandon(call, work, error.what());
    }
  }
  bool hopeless = false;
  std::string error;
  while (!wait_once(*work, GroupWatch::kLookInterval, error)) {
    const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
    // What a rank sent before it ended may still be on its way, hence one more round.
    if (hopeless || waited >= watch_->timeout()) abandon(call, work, "");
    hopeless = watch_->is_hopeless(call, waited);
  }
  if (!error.empty()) abandon(call, work, error);
  watch_->end_wait();
}

void Channel::wait_awoken(const WatchedCall& call, const WorkPtr& work) {
  // Longer than we wait, since the engine closes all connections when it has waited so long.
  const Milliseconds beyond = watch_->timeout() + std::chrono::hours(1);
  bool hopeless = false;
  while (true) {
    try {
      if (work->wait(beyond)) break;
    } catch (const std::exception& error) {
      abandon(call, work, error.what());
    }
    const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - call.begin);
    if (hopeless || waited >= watch_->timeout()) abandon(call, work, "");
    hopeless = watch_->is_hopeless(call, waited);
  }
  watch_->end_wait();
}

void Channel::abandon(const WatchedCall& call, const WorkPtr& work,
                      const std::string& engine_words) {
  abandoned_.push_back(work);
  watch_->fail(call, engine_words);
}

ChannelPending::ChannelPending(std::shared_ptr<Channel> channel, WatchedCall call, WorkPtr work,
                               std::function<void()> finish)
    : channel_(std::move(channel)),
      call_(std::move(call)),
      work_(std::move(work)),
      finish_(std::move(finish)) {}

void ChannelPending::wait() {
  if (work_ == nullptr) return;
  channel_->wait(call_, work_);
  if (finish_) finish_();
  work_.reset();
  finish_ = nullptr;
}

bool ChannelPending::is_done() { return work_ == nullptr || work_->isCompleted(); }

}  // namespace tessera::detail
