#include "tessera/comm/c10d/messenger.h"

#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "tessera/base/check.h"
#include "tessera/comm/c10d/agreement.h"
#include "tessera/comm/c10d/moved_view.h"
#include "tessera/comm/message_tag.h"

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// A message's tag stands for three of the engine: what the sender calls, what the receiver calls,
// and the data.
constexpr int kTags = 3;
static_assert(kLargestTag < std::numeric_limits<int>::max() / kTags - 1);

WorkPtr post(Channel& channel, at::Tensor data, std::int64_t peer, int tag, bool is_send) {
  std::vector<at::Tensor> tensors = {std::move(data)};
  const int other = static_cast<int>(peer);
  return is_send ? channel.backend().send(tensors, other, tag)
                 : channel.backend().recv(tensors, other, tag);
}

/// What a side of a message passes, to be compared.
at::Tensor pack_side(const std::string& arguments) {
  const auto words = pack_call({"", arguments});
  at::Tensor side = at::empty({static_cast<std::int64_t>(words.size())}, at::kLong);
  std::copy(words.begin(), words.end(), side.mutable_data_ptr<std::int64_t>());
  return side;
}

std::string unpack_side(const at::Tensor& side) {
  return unpack_call({side.const_data_ptr<std::int64_t>(), CallText::kSize});
}

/// Both sides of a message were called differently.
class Mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace

/// How far a message is; shared with the thread that moves it.
struct Messenger::Progress {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool cancelled = false;
  /// What the thread waits for.
  WorkPtr current;
  std::string error;
  bool is_mismatch = false;

  void wait_for_work(const WorkPtr& work, Milliseconds timeout) {
    {
      const std::lock_guard lock(mutex);
      if (cancelled) throw std::runtime_error("the group is closed");
      current = work;
    }
    if (!work->wait(timeout)) throw std::runtime_error("the group is closed");
  }

  void finish(std::string words, bool mismatch) {
    const std::lock_guard lock(mutex);
    done = true;
    current.reset();
    error = std::move(words);
    is_mismatch = mismatch;
    changed.notify_all();
  }

  void cancel() {
    const std::lock_guard lock(mutex);
    cancelled = true;
    if (current != nullptr) current->abort();
  }

  bool wait_for(Milliseconds limit) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, limit, [&] { return done; });
  }
};

struct Messenger::Transfer {
  std::shared_ptr<Channel> channel;
  at::Tensor data;
  std::int64_t peer;
  std::int64_t own_rank;
  std::int64_t peer_rank;
  int tag;
  bool is_send;
  /// To be compared; nothing when checks are off.
  std::optional<std::string> arguments;
  std::shared_ptr<Progress> before;
};

class Messenger::TransferPending : public Pending {
 public:
  TransferPending(std::shared_ptr<Channel> channel, WatchedCall call,
                  std::shared_ptr<Progress> progress)
      : channel_(std::move(channel)), call_(std::move(call)), progress_(std::move(progress)) {}

  void wait() override {
    const auto begin = Clock::now();
    GroupWatch& watch = channel_->watch();
    bool hopeless = false;
    while (!progress_->wait_for(GroupWatch::kLookInterval)) {
      const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin);
      if (hopeless || waited >= watch.timeout()) watch.fail(call_, "");
      hopeless = watch.is_hopeless(call_, waited);
    }
    watch.end_wait();
    if (progress_->error.empty()) return;
    if (progress_->is_mismatch) watch.fail_because(call_, progress_->error);
    watch.fail(call_, progress_->error);
  }

  bool is_done() override { return progress_->wait_for(Milliseconds(0)); }

 private:
  std::shared_ptr<Channel> channel_;
  WatchedCall call_;
  std::shared_ptr<Progress> progress_;
};

Messenger::~Messenger() {
  constexpr Milliseconds kPatience{200};
  std::vector<std::shared_ptr<Progress>> running;
  for (const auto& each : started_) {
    if (auto progress = each.lock()) running.push_back(std::move(progress));
  }
  for (const auto& progress : running) progress->cancel();
  for (const auto& progress : running) (void)progress->wait_for(kPatience);
}

void Messenger::announce(std::string arguments) { announced_ = std::move(arguments); }

PendingPtr Messenger::send(const at::Tensor& data, std::int64_t to, std::int64_t tag) {
  return start(data, to, tag, /*is_send=*/true);
}

PendingPtr Messenger::receive(const at::Tensor& data, std::int64_t from, std::int64_t tag) {
  return start(data, from, tag, /*is_send=*/false);
}

PendingPtr Messenger::start(const at::Tensor& data, std::int64_t peer, std::int64_t tag,
                            bool is_send) {
  TESSERA_INTERNAL_CHECK(tag >= 0 && tag <= kLargestTag, "tag ", tag, " has not been checked");
  const auto arguments = std::exchange(announced_, std::nullopt);
  const auto& ranks = channel_->watch().ranks();
  const std::int64_t peer_rank = ranks[static_cast<std::size_t>(peer)];
  const std::string shown = concat(arguments.value_or(concat("tag ", tag)),
                                   is_send ? ", to rank " : ", from rank ", peer_rank);
  WatchedCall call =
      channel_->watch().begin({is_send, peer_rank, tag, arguments.has_value()}, shown);
  const at::Tensor moved = moved_view(data).data;
  const int engine_tag = static_cast<int>(tag) * kTags;
  if (!arguments && channel_->traits().polls_messages) {
    auto work = channel_->start(call, [&](c10d::Backend& /*backend*/) {
      return post(*channel_, moved, peer, engine_tag, is_send);
    });
    return std::make_shared<ChannelPending>(channel_, std::move(call), std::move(work), nullptr);
  }
  auto progress = std::make_shared<Progress>();
  std::erase_if(started_, [](const auto& each) { return each.expired(); });
  started_.push_back(progress);
  auto before = std::exchange(last_[{peer, tag, is_send}], progress);
  run_in_thread({channel_, moved, peer, ranks[member_], peer_rank, engine_tag, is_send, arguments,
                 std::move(before)},
                progress);
  return std::make_shared<TransferPending>(channel_, std::move(call), std::move(progress));
}

void Messenger::run_in_thread(Transfer transfer, const std::shared_ptr<Progress>& progress) {
  std::thread([transfer = std::optional(std::move(transfer)), progress]() mutable {
    std::string words;
    bool is_mismatch = false;
    try {
      run(*transfer, *progress);
    } catch (const Mismatch& error) {
      words = error.what();
      is_mismatch = true;
    } catch (const std::exception& error) {
      words = error.what();
    }
    // Whoever learns of the end may close the engine, so nothing of it may be held here.
    transfer.reset();
    progress->finish(std::move(words), is_mismatch);
  }).detach();
}

void Messenger::compare(const Transfer& transfer, Progress& progress) {
  Channel& channel = *transfer.channel;
  const Milliseconds timeout = channel.watch().timeout();
  const int own_tag = transfer.tag + (transfer.is_send ? 1 : 2);
  const int their_tag = transfer.tag + (transfer.is_send ? 2 : 1);
  const at::Tensor own = pack_side(*transfer.arguments);
  const at::Tensor theirs = at::empty_like(own);
  const WorkPtr sent = post(channel, own, transfer.peer, own_tag, true);
  progress.wait_for_work(post(channel, theirs, transfer.peer, their_tag, false), timeout);
  progress.wait_for_work(sent, timeout);
  if (own.equal(theirs)) return;
  std::string mine = concat("rank ", transfer.own_rank, " calls ",
                            transfer.is_send ? "send" : "recv", unpack_side(own));
  std::string other = concat("rank ", transfer.peer_rank, " calls ",
                             transfer.is_send ? "recv" : "send", unpack_side(theirs));
  if (!transfer.is_send) std::swap(mine, other);
  throw Mismatch(concat("the ranks do not agree: ", mine, ", ", other));
}

void Messenger::run(const Transfer& transfer, Progress& progress) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Channel& channel = *transfer.channel;
  const Milliseconds timeout = channel.watch().timeout();
  if (transfer.before != nullptr && !transfer.before->wait_for(timeout)) {
    throw std::runtime_error("the message before it is not complete");
  }
  if (transfer.arguments) compare(transfer, progress);
  progress.wait_for_work(
      post(channel, transfer.data, transfer.peer, transfer.tag, transfer.is_send), timeout);
}

}  // namespace tessera::detail
