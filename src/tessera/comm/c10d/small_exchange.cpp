#include "tessera/comm/c10d/small_exchange.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>

#include "tessera/base/check.h"
#include "tessera/comm/waiting.h"

namespace tessera::detail {
namespace {

/// Far from the tags of programs that use an adopted process group themselves, and from those of our
/// own messages.
constexpr int kFirstTag = 1 << 30;

/// No exchange of this process has had this tag, or a larger one.
std::atomic<int> next_tag = kFirstTag;

void raise_next_tag(int tag) {
  int known = next_tag;
  while (known < tag && !next_tag.compare_exchange_weak(known, tag)) {
  }
}

}  // namespace

SmallExchange::SmallExchange(std::shared_ptr<Channel> channel, std::size_t member)
    : channel_(std::move(channel)),
      member_(member),
      room_(room(channel_->backend().getSize())),
      lines_(static_cast<std::size_t>(channel_->backend().getSize())) {}

std::size_t SmallExchange::room(std::int64_t members) {
  // Large enough for the activations of small networks; a megabyte for all, and two rooms each.
  constexpr std::size_t kMost = 256 * 1024;
  constexpr std::size_t kLeast = 4 * 1024;
  constexpr std::size_t kTogether = 512 * 1024;
  return std::clamp(kTogether / static_cast<std::size_t>(members), kLeast, kMost);
}

// What an exchange on the same connections has left behind, such as rooms that nobody has sent to,
// must not be met by this one. So every exchange has a tag that none of the members has used before.
void SmallExchange::open(const WatchedCall& call) {
  alarm_ = Alarm::shared();
  at::Tensor mine = at::empty({1}, at::kInt);
  *mine.mutable_data_ptr<int>() = next_tag;
  at::Tensor all = at::empty({static_cast<std::int64_t>(size())}, at::kInt);
  c10d::AllgatherOptions options;
  options.timeout = channel_->watch().timeout();
  channel_->wait(call, channel_->start(call, [&](c10d::Backend& backend) {
    return backend._allgather_base(all, mine, options);
  }));
  const auto* tags = all.const_data_ptr<int>();
  tag_ = *std::max_element(tags, tags + size());
  raise_next_tag(tag_ + 1);
  make_room(call, turn_);
}

void SmallExchange::make_room(const WatchedCall& call, std::size_t turn) {
  for (std::size_t i = 0; i < size(); ++i) {
    if (i == member_) continue;
    at::Tensor& room = lines_[i].rooms[turn];
    if (!room.defined()) room = at::empty({static_cast<std::int64_t>(room_)}, at::kByte);
    std::vector<at::Tensor> tensors = {room};
    lines_[i].receives[turn] = channel_->start(call, [&](c10d::Backend& backend) {
      return backend.recv(tensors, static_cast<int>(i), tag_);
    });
  }
}

void SmallExchange::fill(Line& line, Bytes head, Bytes part) const {
  TESSERA_INTERNAL_CHECK(head.size() + part.size() <= room_, "a message of ", part.size(),
                         " bytes does not fit into the room of ", room_);
  const auto bytes = static_cast<std::int64_t>(head.size() + part.size());
  if (!line.sent.defined() || line.sent.numel() < bytes) line.sent = at::empty({bytes}, at::kByte);
  auto* to = static_cast<std::byte*>(line.sent.mutable_data_ptr());
  std::copy(head.begin(), head.end(), to);
  if (!part.empty()) std::memcpy(to + head.size(), part.data(), part.size());
}

void SmallExchange::run(const WatchedCall& call, Bytes head, std::span<const Bytes> parts) {
  const Waiting waiting;
  if (alarm_ == nullptr) open(call);
  const std::size_t next = 1 - turn_;
  make_room(call, next);
  for (std::size_t i = 0; i < size(); ++i) {
    Line& line = lines_[i];
    if (i == member_) continue;
    if (line.send != nullptr) wait(call, line.send);
    const Bytes part = parts.empty() ? Bytes() : parts[i];
    fill(line, head, part);
    std::vector<at::Tensor> tensors = {
        line.sent.narrow(0, 0, static_cast<std::int64_t>(head.size() + part.size()))};
    line.send = channel_->start(call, [&](c10d::Backend& backend) {
      return backend.send(tensors, static_cast<int>(i), tag_);
    });
  }
  for (std::size_t i = 0; i < size(); ++i) {
    if (i != member_) wait(call, lines_[i].receives[turn_]);
  }
  turn_ = next;
}

void SmallExchange::wait(const WatchedCall& call, WorkPtr& work) {
  const Alarm::Watch watch(*alarm_, *work);
  channel_->wait_awoken(call, work);
  work.reset();
}

std::byte* SmallExchange::received(std::size_t member) const {
  return static_cast<std::byte*>(lines_[member].rooms[1 - turn_].mutable_data_ptr());
}

}  // namespace tessera::detail
