#include "tessera/comm/c10d/c10d_transport.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/c10d/agreement.h"
#include "tessera/comm/c10d/channel.h"
#include "tessera/comm/c10d/gloo_threads.h"
#include "tessera/comm/c10d/messenger.h"
#include "tessera/comm/c10d/moved_view.h"
#include "tessera/comm/c10d/small_exchange.h"

namespace tessera::detail {
namespace {

using Counts = std::vector<std::int64_t>;

Counts to_counts(std::span<const std::int64_t> counts) { return {counts.begin(), counts.end()}; }

bool all_equal(const Counts& counts) {
  return std::all_of(counts.begin(), counts.end(), [&](auto each) { return each == counts[0]; });
}

Counts scaled(Counts counts, std::int64_t factor) {
  for (auto& count : counts) count *= factor;
  return counts;
}

/// The same tensor so many times, one behind the other.
at::Tensor repeated(const at::Tensor& flat, std::int64_t times) {
  const at::Tensor copies = at::empty({times * flat.numel()}, flat.options());
  for (std::int64_t i = 0; i < times; ++i) {
    copy_flat(copies, i * flat.numel(), flat, 0, flat.numel());
  }
  return copies;
}

}  // namespace

C10dTransport::C10dTransport(std::shared_ptr<Channel> channel, std::size_t member)
    : channel_(std::move(channel)),
      member_(member),
      messenger_(std::make_unique<Messenger>(channel_, member)) {
  if (channel_->traits().exchanges_small && size() > 1) {
    small_ = std::make_unique<SmallExchange>(channel_, member);
    calm_gloo_threads();
  }
}

C10dTransport::~C10dTransport() = default;

const char* C10dTransport::engine() const { return channel_->traits().engine.c_str(); }

std::int64_t C10dTransport::size() const { return channel_->backend().getSize(); }

WatchedCall C10dTransport::begin(const char* op) {
  ++sequence_;
  return channel_->watch().begin(op, std::exchange(arguments_, {}));
}

Counts C10dTransport::exchange_words(const WatchedCall& call, std::span<const std::int64_t> words) {
  if (small_ != nullptr && words.size_bytes() <= small_->room()) {
    return exchange_small_words(call, words);
  }
  const auto length = static_cast<std::int64_t>(words.size());
  at::Tensor mine = at::empty({length}, at::kLong);
  std::copy(words.begin(), words.end(), mine.mutable_data_ptr<std::int64_t>());
  const at::Device device = channel_->traits().device;
  if (!device.is_cpu()) mine = mine.to(device);
  at::Tensor all = at::empty({length * size()}, mine.options());
  c10d::AllgatherOptions options;
  options.timeout = channel_->watch().timeout();
  channel_->wait(call, channel_->start(call, [&](c10d::Backend& backend) {
    return backend._allgather_base(all, mine, options);
  }));
  if (!device.is_cpu()) all = all.to(at::kCPU);
  const auto* first = all.const_data_ptr<std::int64_t>();
  return {first, first + all.numel()};
}

void C10dTransport::check(const Fingerprint& fingerprint) {
  if (fingerprint.is_message()) {
    // Only two of the members know of it; they compare when it is sent.
    messenger_->announce(fingerprint.arguments);
    return;
  }
  if (small_ != nullptr) {
    compare_announced();
    announced_ = fingerprint;
    return;
  }
  (void)check_records(fingerprint, {});
  arguments_ = fingerprint.arguments;
}

Counts C10dTransport::check_records(const Fingerprint& fingerprint,
                                    std::span<const std::int64_t> record) {
  compare_announced();
  const WatchedCall call = channel_->watch().begin(fingerprint.op, fingerprint.arguments);
  const Claims claims = take_claims(fingerprint);
  const CheckRecord own = make_record(fingerprint, sequence_++, record.size(), claims);
  const Counts words = exchange_words(call, pack(own, record));
  compare_records(call, fingerprint, claims, words);
  // All have the same length, so all decide alike.
  if (record.size() > CheckRecord::kInline) return exchange_words(call, record);
  Counts result;
  for (std::size_t i = 0; i < words.size(); i += CheckRecord::kSize) {
    const auto begin =
        words.begin() + static_cast<std::ptrdiff_t>(i + CheckRecord::kSize - CheckRecord::kInline);
    result.insert(result.end(), begin, begin + static_cast<std::ptrdiff_t>(record.size()));
  }
  return result;
}

void C10dTransport::compare_records(const WatchedCall& call, const Fingerprint& fingerprint,
                                    const Claims& claims, std::span<const std::int64_t> words) {
  std::vector<CheckRecord> records;
  for (std::size_t i = 0; i < words.size(); i += CheckRecord::kSize) {
    records.push_back(unpack(words.subspan(i, CheckRecord::kSize)));
  }
  if (const auto other = find_difference(records)) {
    throw_difference(call, pack_call(fingerprint, claims), words, *other);
  }
}

void C10dTransport::throw_difference(const WatchedCall& call, std::span<const std::int64_t> own,
                                     std::span<const std::int64_t> words, std::size_t other) {
  const Counts texts = exchange_words(call, own);
  const auto side = [&](std::size_t member) {
    return unpack_side(channel_->watch().ranks()[member],
                       std::span(texts).subspan(member * CallText::kSize, CallText::kSize),
                       unpack(words.subspan(member * CheckRecord::kSize, CheckRecord::kSize)));
  };
  channel_->watch().fail_because(call, describe_difference(side(0), side(other)));
}

PendingPtr C10dTransport::exchange_parts(const WatchedCall& call, const at::Tensor& out,
                                         const at::Tensor& in, Counts receive_counts,
                                         Counts send_counts, std::function<void()> finish) {
  MovedView to = moved_view(out);
  MovedView from = moved_view(in);
  receive_counts = scaled(std::move(receive_counts), to.width);
  send_counts = scaled(std::move(send_counts), to.width);
  c10d::AllToAllOptions options;
  options.timeout = channel_->watch().timeout();
  auto work = channel_->start(call, [&](c10d::Backend& backend) {
    return backend.alltoall_base(to.data, from.data, receive_counts, send_counts, options);
  });
  return std::make_shared<ChannelPending>(channel_, call, std::move(work), std::move(finish));
}

PendingPtr C10dTransport::gather_parts(const WatchedCall& call, const at::Tensor& out,
                                       const at::Tensor& in, const Counts& counts,
                                       std::function<void()> finish) {
  MovedView to = moved_view(out);
  MovedView from = moved_view(in);
  c10d::AllgatherOptions options;
  options.timeout = channel_->watch().timeout();
  WorkPtr work;
  if (all_equal(counts)) {
    work = channel_->start(call, [&](c10d::Backend& backend) {
      return backend._allgather_base(to.data, from.data, options);
    });
  } else if (channel_->traits().takes_uneven_lists) {
    std::vector<std::vector<at::Tensor>> parts(1);
    std::int64_t begin = 0;
    for (const auto count : counts) {
      parts[0].push_back(to.data.narrow(0, begin, count * to.width));
      begin += count * to.width;
    }
    std::vector<at::Tensor> own = {from.data};
    work = channel_->start(
        call, [&](c10d::Backend& backend) { return backend.allgather(parts, own, options); });
  } else {
    return exchange_parts(call, out, repeated(from.data, size()).view(in.scalar_type()), counts,
                          Counts(counts.size(), in.numel()), std::move(finish));
  }
  return std::make_shared<ChannelPending>(channel_, call, std::move(work), std::move(finish));
}

PendingPtr C10dTransport::all_gather(const at::Tensor& out, const at::Tensor& in,
                                     std::span<const std::int64_t> counts) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (all_gather_small(out, in, counts)) return std::make_shared<DonePending>();
  const WatchedCall call = begin("all_gather_into_tensor");
  return gather_parts(call, out, in, to_counts(counts), nullptr);
}

PendingPtr C10dTransport::all_to_all(const at::Tensor& out, const at::Tensor& in,
                                     std::span<const std::int64_t> receive_counts,
                                     std::span<const std::int64_t> send_counts) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (all_to_all_small(out, in, receive_counts, send_counts))
    return std::make_shared<DonePending>();
  const WatchedCall call = begin("all_to_all_single");
  return exchange_parts(call, out, in, to_counts(receive_counts), to_counts(send_counts), nullptr);
}

PendingPtr C10dTransport::broadcast(const at::Tensor& data, std::int64_t root) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (broadcast_small(data, root)) return std::make_shared<DonePending>();
  const WatchedCall call = begin("broadcast");
  if (data.numel() == 0) return std::make_shared<DonePending>();
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = channel_->watch().timeout();
  std::vector<at::Tensor> tensors = {moved_view(data).data};
  auto work = channel_->start(
      call, [&](c10d::Backend& backend) { return backend.broadcast(tensors, options); });
  return std::make_shared<ChannelPending>(channel_, call, std::move(work), nullptr);
}

PendingPtr C10dTransport::gather(const at::Tensor& out, const at::Tensor& in,
                                 std::span<const std::int64_t> counts, std::int64_t root) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool is_root = static_cast<std::int64_t>(member_) == root;
  Counts send_counts(counts.size(), 0);
  send_counts[static_cast<std::size_t>(root)] = in.numel();
  Counts receive_counts = is_root ? to_counts(counts) : Counts(counts.size(), 0);
  const at::Tensor to = is_root ? out : at::empty({0}, in.options());
  if (all_to_all_small(to, in, receive_counts, send_counts)) return std::make_shared<DonePending>();
  return exchange_parts(begin("gather"), to, in, std::move(receive_counts), std::move(send_counts),
                        nullptr);
}

PendingPtr C10dTransport::scatter(const at::Tensor& out, const at::Tensor& in,
                                  std::span<const std::int64_t> counts, std::int64_t root) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool is_root = static_cast<std::int64_t>(member_) == root;
  Counts receive_counts(counts.size(), 0);
  receive_counts[static_cast<std::size_t>(root)] = out.numel();
  Counts send_counts = is_root ? to_counts(counts) : Counts(counts.size(), 0);
  const at::Tensor from = is_root ? in : at::empty({0}, out.options());
  if (all_to_all_small(out, from, receive_counts, send_counts)) {
    return std::make_shared<DonePending>();
  }
  return exchange_parts(begin("scatter"), out, from, std::move(receive_counts),
                        std::move(send_counts), nullptr);
}

PendingPtr C10dTransport::send(const at::Tensor& data, std::int64_t to, std::int64_t tag) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return messenger_->send(data, to, tag);
}

PendingPtr C10dTransport::receive(const at::Tensor& data, std::int64_t from, std::int64_t tag) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return messenger_->receive(data, from, tag);
}

void C10dTransport::barrier() {
  // Who has compared its call with all others knows that they have come.
  if (barrier_small()) return;
  const WatchedCall call = begin("barrier");
  c10d::BarrierOptions options;
  options.timeout = channel_->watch().timeout();
  channel_->wait(call, channel_->start(
                           call, [&](c10d::Backend& backend) { return backend.barrier(options); }));
}

}  // namespace tessera::detail
