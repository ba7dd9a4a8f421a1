#include <algorithm>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/threads/thread_transport.h"

namespace tessera::detail {
namespace {

/// One rank's parts of the steps of one or several tensors. Members are the group's ranks; messages
/// name global ranks.
class ExchangeOp : public ThreadOp {
 public:
  ExchangeOp(Announced announced, std::span<const ExchangePart> parts,
             const std::vector<std::int64_t>& ranks, std::size_t own_member)
      : ThreadOp("redistribute", std::move(announced)),
        parts_(parts.begin(), parts.end()),
        ranks_(ranks),
        own_member_(own_member) {}

  [[nodiscard]] std::int64_t bytes() const override {
    std::int64_t bytes = 0;
    for (const auto& part : parts_) bytes += static_cast<std::int64_t>(part.out.nbytes());
    return bytes;
  }

  /// Whoever has announced equal layouts has steps that fit; otherwise every message is looked at.
  [[nodiscard]] std::string conflict(std::span<ThreadOp* const> members,
                                     std::size_t /*own_member*/) const override {
    if (!arguments().empty()) return "";
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      for (const auto& message : parts_[i].own->receives) {
        const ExchangePart* from = part_from(i, message, members);
        const Message* sent = from == nullptr ? nullptr : message_to_own(*from);
        const auto dtype = parts_[i].out.scalar_type();
        const bool fits = sent != nullptr && sent->numel == message.numel &&
                          sent->box_count == message.box_count && from->in.scalar_type() == dtype;
        if (!fits) return describe_misfit(message, dtype, sent, from);
      }
    }
    return "";
  }

  void run(std::span<ThreadOp* const> members, std::int64_t /*phase*/) override {
    for (std::size_t i = 0; i < parts_.size(); ++i) run_part(i, members);
  }

 private:
  /// A message, as both sides see it.
  struct Parcel {
    const Message* received;
    const Message* sent;
    const ExchangePart* from;
  };
  using Parcels = c10::SmallVector<Parcel, 8>;

  void run_part(std::size_t index, std::span<ThreadOp* const> members) const {
    const ExchangePart& part = parts_[index];
    const RankStep& own = *part.own;
    if (own.fill_identity) fill_with_identity(part.out, *own.fill_identity);
    Parcels parcels;
    for (const auto& message : own.receives) parcels.push_back(parcel_of(index, message, members));
    if (own.reduce && all_fill_the_same(part, parcels)) {
      reduce_in_blocks(part, parcels);
    } else {
      for (const auto& parcel : parcels) {
        for (std::size_t i = 0; i < parcel.received->box_count; ++i) {
          take(part, parcel, own.box(*parcel.received, i), parcel.from->own->box(*parcel.sent, i));
        }
      }
    }
    divide(part.out, own.divisor);
  }

  /// The sender's part in the exchange of a tensor; null when it takes none.
  [[nodiscard]] const ExchangePart* part_from(std::size_t index, const Message& message,
                                              std::span<ThreadOp* const> members) const {
    const auto place = std::find(ranks_.begin(), ranks_.end(), message.peer);
    if (place == ranks_.end()) return nullptr;
    const auto& sender =
        static_cast<const ExchangeOp&>(*members[static_cast<std::size_t>(place - ranks_.begin())]);
    return index < sender.parts_.size() ? &sender.parts_[index] : nullptr;
  }

  /// What is sent to this member; null when nothing is.
  [[nodiscard]] const Message* message_to_own(const ExchangePart& from) const {
    const auto& sends = from.own->sends;
    const auto sent = std::find_if(sends.begin(), sends.end(), [&](const Message& candidate) {
      return candidate.peer == ranks_[own_member_];
    });
    return sent == sends.end() ? nullptr : &*sent;
  }

  [[nodiscard]] std::string describe_misfit(const Message& message, at::ScalarType dtype,
                                            const Message* sent, const ExchangePart* from) const {
    std::string text = concat("in ", call(), " rank ", ranks_[own_member_], " expects ",
                              message.numel, " element(s) of ", c10::toString(dtype), " from rank ",
                              message.peer, ", which sends ");
    if (sent == nullptr) return text + "nothing";
    return concat(text, sent->numel, " of ", c10::toString(from->in.scalar_type()));
  }

  [[nodiscard]] Parcel parcel_of(std::size_t index, const Message& message,
                                 std::span<ThreadOp* const> members) const {
    const ExchangePart* from = part_from(index, message, members);
    TESSERA_INTERNAL_CHECK(from != nullptr, "rank ", message.peer, " is not in the group");
    const Message* sent = message_to_own(*from);
    TESSERA_INTERNAL_CHECK(sent != nullptr && sent->box_count == message.box_count, "rank ",
                           message.peer, " has no message for rank ", ranks_[own_member_]);
    return {&message, sent, from};
  }

  /// Copies or reduces a box straight out of the sender's tensor.
  static void take(const ExchangePart& part, const Parcel& parcel, std::span<const Extent> to,
                   std::span<const Extent> from) {
    if (parcel.received->accumulate) {
      reduce_box(part.out, to, parcel.from->in, from, *part.own->reduce);
    } else {
      copy_box(part.out, to, parcel.from->in, from);
    }
  }

  /// True when every message is a contribution to the same boxes.
  [[nodiscard]] static bool all_fill_the_same(const ExchangePart& part, const Parcels& parcels) {
    if (parcels.empty() || part.out.dim() == 0) return false;
    const RankStep& own = *part.own;
    const Message& first = *parcels.front().received;
    return std::all_of(parcels.begin(), parcels.end(), [&](const Parcel& parcel) {
      if (parcel.received->box_count != first.box_count) return false;
      for (std::size_t i = 0; i < first.box_count; ++i) {
        const auto box = own.box(*parcel.received, i);
        if (!std::equal(box.begin(), box.end(), own.box(first, i).begin())) return false;
      }
      return true;
    });
  }

  /// Takes all contributions to a few rows before those to the next, so that they are reduced in
  /// the cache.
  static void reduce_in_blocks(const ExchangePart& part, const Parcels& parcels) {
    constexpr std::int64_t kBlockBytes = 128 * 1024;
    const Message& first = *parcels.front().received;
    for (std::size_t i = 0; i < first.box_count; ++i) {
      const auto box = part.own->box(first, i);
      auto row_bytes = static_cast<std::int64_t>(part.out.element_size());
      for (const auto& extent : box.subspan(1)) row_bytes *= extent.size;
      const std::int64_t rows =
          std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(row_bytes, 1));
      for (std::int64_t begin = 0; begin < box[0].size; begin += rows) {
        const std::int64_t size = std::min(rows, box[0].size - begin);
        const auto rows_of = [&](std::span<const Extent> whole) {
          c10::SmallVector<Extent, 8> some(whole.begin(), whole.end());
          some[0] = {whole[0].begin + begin, size};
          return some;
        };
        for (const auto& parcel : parcels) {
          take(part, parcel, rows_of(box), rows_of(parcel.from->own->box(*parcel.sent, i)));
        }
      }
    }
  }

  c10::SmallVector<ExchangePart, 1> parts_;
  const std::vector<std::int64_t>& ranks_;
  std::size_t own_member_;
};

}  // namespace

PendingPtr ThreadTransport::exchange(const at::Tensor& out, const at::Tensor& in,
                                     std::shared_ptr<const RankStep> own) {
  const ExchangePart part{out, in, std::move(own)};
  return exchange_all({&part, 1});
}

PendingPtr ThreadTransport::exchange_all(std::span<const ExchangePart> parts) {
  return post(std::make_shared<ExchangeOp>(take_announced(), parts, group_->ranks, member_));
}

}  // namespace tessera::detail
