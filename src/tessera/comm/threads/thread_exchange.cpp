#include <algorithm>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/threads/thread_transport.h"

namespace tessera::detail {
namespace {

/// One rank's part of a step of a plan. Members are the group's ranks; messages name global ranks.
class ExchangeOp : public ThreadOp {
 public:
  ExchangeOp(std::string arguments, at::Tensor out, at::Tensor in,
             std::shared_ptr<const RankStep> own, const std::vector<std::int64_t>& ranks,
             std::size_t own_member)
      : ThreadOp("redistribute", std::move(arguments)),
        out_(std::move(out)),
        in_(std::move(in)),
        own_(std::move(own)),
        ranks_(ranks),
        own_member_(own_member) {}

  [[nodiscard]] std::int64_t bytes() const override {
    return out_.defined() ? static_cast<std::int64_t>(out_.nbytes()) : 0;
  }

  void run(std::span<ThreadOp* const> members, std::int64_t /*phase*/) override {
    if (!out_.defined()) return;
    if (own_->fill_identity) fill_with_identity(out_, *own_->fill_identity);
    std::vector<Parcel> parcels;
    parcels.reserve(own_->receives.size());
    for (const auto& message : own_->receives) parcels.push_back(parcel_of(message, members));
    if (own_->reduce && all_fill_the_same(parcels)) {
      reduce_in_blocks(parcels);
    } else {
      for (const auto& parcel : parcels) {
        for (std::size_t i = 0; i < parcel.received->box_count; ++i) {
          take(parcel, own_->box(*parcel.received, i), parcel.from->own_->box(*parcel.sent, i));
        }
      }
    }
    divide(out_, own_->divisor);
  }

 private:
  /// A message, as both sides see it.
  struct Parcel {
    const Message* received;
    const Message* sent;
    const ExchangeOp* from;
  };

  [[nodiscard]] Parcel parcel_of(const Message& message, std::span<ThreadOp* const> members) const {
    const auto place = std::find(ranks_.begin(), ranks_.end(), message.peer);
    TESSERA_INTERNAL_CHECK(place != ranks_.end(), "rank ", message.peer, " is not in the group");
    const auto& sender =
        static_cast<const ExchangeOp&>(*members[static_cast<std::size_t>(place - ranks_.begin())]);
    const std::int64_t receiver = ranks_[own_member_];
    const auto& sends = sender.own_->sends;
    const auto sent = std::find_if(sends.begin(), sends.end(), [&](const Message& candidate) {
      return candidate.peer == receiver;
    });
    TESSERA_INTERNAL_CHECK(sent != sends.end() && sent->box_count == message.box_count, "rank ",
                           message.peer, " has no message for rank ", receiver);
    return {&message, &*sent, &sender};
  }

  /// Copies or reduces a box straight out of the sender's tensor.
  void take(const Parcel& parcel, std::span<const Extent> to, std::span<const Extent> from) const {
    if (parcel.received->accumulate) {
      reduce_box(out_, to, parcel.from->in_, from, *own_->reduce);
    } else {
      copy_box(out_, to, parcel.from->in_, from);
    }
  }

  /// True when every message is a contribution to the same boxes.
  [[nodiscard]] bool all_fill_the_same(const std::vector<Parcel>& parcels) const {
    if (parcels.empty() || out_.dim() == 0) return false;
    const Message& first = *parcels.front().received;
    return std::all_of(parcels.begin(), parcels.end(), [&](const Parcel& parcel) {
      if (parcel.received->box_count != first.box_count) return false;
      for (std::size_t i = 0; i < first.box_count; ++i) {
        const auto box = own_->box(*parcel.received, i);
        if (!std::equal(box.begin(), box.end(), own_->box(first, i).begin())) return false;
      }
      return true;
    });
  }

  /// Takes all contributions to a few rows before those to the next, so that they are reduced in
  /// the cache.
  void reduce_in_blocks(const std::vector<Parcel>& parcels) const {
    constexpr std::int64_t kBlockBytes = 128 * 1024;
    const Message& first = *parcels.front().received;
    for (std::size_t i = 0; i < first.box_count; ++i) {
      const auto box = own_->box(first, i);
      auto row_bytes = static_cast<std::int64_t>(out_.element_size());
      for (const auto& extent : box.subspan(1)) row_bytes *= extent.size;
      const std::int64_t rows =
          std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(row_bytes, 1));
      for (std::int64_t begin = 0; begin < box[0].size; begin += rows) {
        const std::int64_t size = std::min(rows, box[0].size - begin);
        const auto rows_of = [&](std::span<const Extent> whole) {
          c10::SmallVector<Extent, 8> part(whole.begin(), whole.end());
          part[0] = {whole[0].begin + begin, size};
          return part;
        };
        for (const auto& parcel : parcels) {
          take(parcel, rows_of(box), rows_of(parcel.from->own_->box(*parcel.sent, i)));
        }
      }
    }
  }

  at::Tensor out_;
  at::Tensor in_;
  std::shared_ptr<const RankStep> own_;
  const std::vector<std::int64_t>& ranks_;
  std::size_t own_member_;
};

}  // namespace

PendingPtr ThreadTransport::exchange(const at::Tensor& out, const at::Tensor& in,
                                     std::shared_ptr<const RankStep> own) {
  return post(std::make_shared<ExchangeOp>(take_arguments(), out, in, std::move(own), group_->ranks,
                                           member_));
}

}  // namespace tessera::detail
