#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/c10d/agreement.h"
#include "tessera/comm/c10d/c10d_transport.h"
#include "tessera/comm/c10d/channel.h"
#include "tessera/comm/c10d/small_exchange.h"
#include "tessera/layout/chunk.h"

// The operations of C10dTransport whose data goes along with the comparison of the calls.
namespace tessera::detail {
namespace {

using Bytes = SmallExchange::Bytes;
using Counts = std::vector<std::int64_t>;

/// What is in front of the data of a message.
constexpr std::size_t kHead = sizeof(CheckRecord::Words);

/// Up to this size more than two members send each other everything, instead of chunks in two steps.
constexpr std::size_t kWhole = 8 * 1024;

Bytes bytes_of(const at::Tensor& tensor, std::int64_t begin, std::int64_t count) {
  const std::size_t element = tensor.element_size();
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  return {data + static_cast<std::size_t>(begin) * element,
          static_cast<std::size_t>(count) * element};
}

Bytes bytes_of(std::span<const std::int64_t> words) { return std::as_bytes(words); }

}  // namespace

/// What a rank gives to each member; nothing at all when it has nothing for anybody.
struct SmallParts {
  std::vector<Bytes> parts;
  /// The processor can read them.
  bool is_host = true;

  SmallParts() = default;
  /// The same for all.
  SmallParts(const at::Tensor& data, std::int64_t members)
      : parts(static_cast<std::size_t>(members), bytes_of(data, 0, data.numel())),
        is_host(data.device().is_cpu()) {}
  /// One behind the other.
  SmallParts(const at::Tensor& data, std::span<const std::int64_t> counts)
      : is_host(data.device().is_cpu()) {
    std::int64_t begin = 0;
    for (const auto count : counts) {
      parts.push_back(bytes_of(data, begin, count));
      begin += count;
    }
  }

  [[nodiscard]] bool fit_into(std::size_t room) const {
    return is_host && std::all_of(parts.begin(), parts.end(),
                                  [&](const auto& part) { return part.size() <= room; });
  }
};

Counts C10dTransport::exchange_small_words(const WatchedCall& call,
                                           std::span<const std::int64_t> words) {
  small_->run(call, bytes_of(words), {});
  const auto members = static_cast<std::size_t>(size());
  Counts all(members * words.size());
  for (std::size_t i = 0; i < members; ++i) {
    auto* to = all.data() + i * words.size();
    if (i == member_) {
      std::copy(words.begin(), words.end(), to);
    } else {
      std::memcpy(to, small_->received(i), words.size_bytes());
    }
  }
  return all;
}

void C10dTransport::compare_announced() {
  if (!announced_) return;
  const auto fingerprint = *std::exchange(announced_, std::nullopt);
  (void)check_records(fingerprint, {});
}

std::optional<WatchedCall> C10dTransport::move_along(const SmallParts& parts) {
  if (!announced_) return std::nullopt;
  auto fingerprint = *std::exchange(announced_, std::nullopt);
  WatchedCall call = channel_->watch().begin(fingerprint.op, fingerprint.arguments);
  const Claims claims = take_claims(fingerprint);
  const bool fit = parts.fit_into(small_->room() - kHead);
  const std::int64_t goes_along = fit ? 1 : 0;
  const auto own = pack(make_record(fingerprint, sequence_++, 0, claims), {&goes_along, 1});
  small_->run(call, bytes_of(own), fit ? std::span(parts.parts) : std::span<const Bytes>());
  Counts words;
  bool all_fit = fit;
  for (std::size_t i = 0; i < static_cast<std::size_t>(size()); ++i) {
    CheckRecord::Words theirs = own;
    if (i != member_) std::memcpy(theirs.data(), small_->received(i), kHead);
    words.insert(words.end(), theirs.begin(), theirs.end());
    all_fit = all_fit && theirs[CheckRecord::kSize - CheckRecord::kInline] == 1;
  }
  compare_records(call, fingerprint, claims, words);
  if (all_fit) return call;
  arguments_ = std::move(fingerprint.arguments);
  return std::nullopt;
}

at::Tensor C10dTransport::received(std::size_t member, std::int64_t count,
                                   const at::Tensor& like) const {
  TESSERA_INTERNAL_CHECK(
      static_cast<std::size_t>(count) * like.element_size() <= small_->room() - kHead,
      "no member can have sent ", count, " elements along");
  return at::from_blob(small_->received(member) + kHead, {count}, like.options());
}

void C10dTransport::take_received(std::size_t member, const at::Tensor& out, std::int64_t begin,
                                  std::int64_t count) const {
  if (count > 0) copy_flat(out, begin, received(member, count, out), 0, count);
}

void C10dTransport::reduce_received(const at::Tensor& out, const at::Tensor& own,
                                    ReduceOp op) const {
  const std::int64_t count = out.numel();
  if (count == 0) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(size()); ++i) {
    const at::Tensor part = i == member_ ? own : received(i, count, out);
    if (i == 0) {
      copy_flat(out, 0, part, 0, count);
    } else {
      reduce_flat(out, 0, part, 0, count, op);
    }
  }
  if (op == ReduceOp::avg) divide(out, size());
}

bool C10dTransport::all_reduce_small(const at::Tensor& data, ReduceOp op) {
  if (!announced_) return false;
  if (size() == 2 || data.nbytes() <= kWhole) {
    if (!move_along({data, size()})) return false;
    reduce_received(data, member_ == 0 ? data : data.clone(), op);
    return true;
  }
  // Every member reduces a chunk, and gives it to all.
  Counts counts;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < size(); ++i) {
    counts.push_back(chunk_extent(data.numel(), size(), i).size);
    if (i < static_cast<std::int64_t>(member_)) begin += counts.back();
  }
  const auto call = move_along({data, counts});
  if (!call) return false;
  const at::Tensor own = data.view({-1}).narrow(0, begin, counts[member_]);
  reduce_received(own, own.clone(), op);
  const SmallParts chunk(own, size());
  const CheckRecord::Words head{};
  small_->run(*call, bytes_of(head), chunk.parts);
  begin = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (i != member_) take_received(i, data, begin, counts[i]);
    begin += counts[i];
  }
  return true;
}

bool C10dTransport::all_gather_small(const at::Tensor& out, const at::Tensor& in,
                                     std::span<const std::int64_t> counts) {
  if (!announced_ || !move_along({in, size()})) return false;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (i != member_) take_received(i, out, begin, counts[i]);
    if (i == member_ && counts[i] > 0) copy_flat(out, begin, in, 0, counts[i]);
    begin += counts[i];
  }
  return true;
}

bool C10dTransport::reduce_scatter_small(const at::Tensor& out, const at::Tensor& in,
                                         std::span<const std::int64_t> counts, ReduceOp op) {
  if (!announced_ || !move_along({in, counts})) return false;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < member_; ++i) begin += counts[i];
  reduce_received(out, in.view({-1}).narrow(0, begin, counts[member_]), op);
  return true;
}

bool C10dTransport::all_to_all_small(const at::Tensor& out, const at::Tensor& in,
                                     std::span<const std::int64_t> receive_counts,
                                     std::span<const std::int64_t> send_counts) {
  if (!announced_ || !move_along({in, send_counts})) return false;
  std::int64_t own_begin = 0;
  for (std::size_t i = 0; i < member_; ++i) own_begin += send_counts[i];
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < receive_counts.size(); ++i) {
    if (i != member_) take_received(i, out, begin, receive_counts[i]);
    if (i == member_ && receive_counts[i] > 0) {
      copy_flat(out, begin, in, own_begin, receive_counts[i]);
    }
    begin += receive_counts[i];
  }
  return true;
}

bool C10dTransport::broadcast_small(const at::Tensor& data, std::int64_t root) {
  if (!announced_) return false;
  const bool is_root = static_cast<std::int64_t>(member_) == root;
  const bool fits = data.device().is_cpu() && data.nbytes() <= small_->room() - kHead;
  // Who receives must say, too, that it expects it so.
  SmallParts parts = is_root ? SmallParts(data, size()) : SmallParts();
  parts.is_host = fits;
  if (!move_along(parts)) return false;
  if (!is_root) take_received(static_cast<std::size_t>(root), data, 0, data.numel());
  return true;
}

bool C10dTransport::barrier_small() { return move_along({}).has_value(); }

}  // namespace tessera::detail
