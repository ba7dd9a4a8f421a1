#include "tessera/comm/batch_packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>

#include "tessera/base/check.h"
#include "tessera/base/divide.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/large_memory.h"
#include "tessera/comm/packed_exchange.h"
#include "tessera/plan/batch_plan.h"

namespace tessera::detail {
namespace {

using Steps = std::span<const std::shared_ptr<const RankStep>>;

std::int64_t numel_of(std::span<const Extent> box) {
  std::int64_t numel = 1;
  for (const auto& extent : box) numel *= extent.size;
  return numel;
}

/// Lays out one side's messages.
BatchPacking::Side lay_out(Steps parts, std::span<const std::int64_t> elements, const Group& group,
                           std::vector<Message> RankStep::*messages) {
  struct Place {
    std::size_t part;
    std::size_t message;
  };
  const auto& ranks = group.ranks();
  std::vector<std::vector<Place>> places(ranks.size());
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return elements[a] > elements[b]; });
  BatchPacking::Side side;
  side.begins.resize(parts.size());
  for (const auto part : order) {
    const auto& list = (*parts[part]).*messages;
    side.begins[part].assign(list.size(), -1);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto member = std::lower_bound(ranks.begin(), ranks.end(), list[i].peer);
      TESSERA_INTERNAL_CHECK(member != ranks.end() && *member == list[i].peer, "rank ",
                             list[i].peer, " is not in the group");
      places[static_cast<std::size_t>(member - ranks.begin())].push_back({part, i});
    }
  }
  std::int64_t next = 0;
  for (std::size_t member = 0; member < places.size(); ++member) {
    const std::int64_t begin = next;
    if (static_cast<std::int64_t>(member) != group.index()) {
      for (const auto& [part, message] : places[member]) {
        side.begins[part][message] = next;
        next += ((*parts[part]).*messages)[message].numel * elements[part];
      }
    }
    next = ceil_divide(next, kBatchAlignment) * kBatchAlignment;
    side.counts.push_back((next - begin) / BatchPacking::kUnit);
  }
  side.size = next / BatchPacking::kUnit;
  return side;
}

/// One all-to-all of several tensors' messages.
class BatchRound {
 public:
  BatchRound(std::shared_ptr<const BatchPacking> packing, std::vector<ExchangePart> parts,
             std::int64_t rank)
      : packing_(std::move(packing)), parts_(std::move(parts)), rank_(rank) {
    const auto options = parts_.front().in.options().dtype(at::kLong);
    sent_ = new_tensor({packing_->sent().size}, options);
    received_ = new_tensor({packing_->received().size}, options);
  }

  PendingPtr start(Transport& transport) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto& sends = parts_[i].own->sends;
      for (std::size_t k = 0; k < sends.size(); ++k) {
        const std::int64_t begin = packing_->sent().begins[i][k];
        if (begin >= 0) pack(parts_[i], sends[k], begin);
      }
    }
    return transport.all_to_all(received_, sent_, packing_->received().counts,
                                packing_->sent().counts);
  }

  /// Puts what has arrived, and what stays, in its place, in the order of each tensor's messages.
  void finish() {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const ExchangePart& part = parts_[i];
      const RankStep& own = *part.own;
      if (own.fill_identity) fill_with_identity(part.out, *own.fill_identity);
      for (std::size_t k = 0; k < own.receives.size(); ++k) {
        const std::int64_t begin = packing_->received().begins[i][k];
        if (begin >= 0) {
          unpack(part, own.receives[k], begin);
        } else {
          keep(part, own.receives[k]);
        }
      }
      divide(part.out, own.divisor);
    }
  }

 private:
  /// The elements of a box that lie in a buffer from byte `begin` on.
  static at::Tensor packed_view(const at::Tensor& buffer, std::int64_t begin,
                                const at::Tensor& like, std::span<const Extent> box) {
    Shape sizes;
    for (const auto& extent : box) sizes.push_back(extent.size);
    const auto bytes = numel_of(box) * static_cast<std::int64_t>(like.element_size());
    return buffer.view(at::kByte).narrow(0, begin, bytes).view(like.scalar_type()).view(sizes);
  }

  void pack(const ExchangePart& part, const Message& message, std::int64_t begin) {
    for (std::size_t i = 0; i < message.box_count; ++i) {
      const auto box = part.own->box(message, i);
      if (is_host(part.in, sent_)) {
        pack_box(static_cast<std::byte*>(sent_.data_ptr()) + begin, part.in, box);
      } else {
        packed_view(sent_, begin, part.in, box).copy_(box_view(part.in, box));
      }
      begin += numel_of(box) * static_cast<std::int64_t>(part.in.element_size());
    }
  }

  void unpack(const ExchangePart& part, const Message& message, std::int64_t begin) {
    for (std::size_t i = 0; i < message.box_count; ++i) {
      const auto box = part.own->box(message, i);
      if (message.accumulate) {
        reduce_box(part.out, box, packed_view(received_, begin, part.out, box), whole_box(box),
                   *part.own->reduce);
      } else if (is_host(part.out, received_)) {
        unpack_box(part.out, box,
                   static_cast<const std::byte*>(received_.const_data_ptr()) + begin);
      } else {
        box_view(part.out, box).copy_(packed_view(received_, begin, part.out, box));
      }
      begin += numel_of(box) * static_cast<std::int64_t>(part.out.element_size());
    }
  }

  /// Moves what stays on the rank straight to its new place.
  void keep(const ExchangePart& part, const Message& received) const {
    const auto& sends = part.own->sends;
    const auto sent = std::find_if(sends.begin(), sends.end(),
                                   [&](const Message& each) { return each.peer == rank_; });
    TESSERA_INTERNAL_CHECK(sent != sends.end() && sent->box_count == received.box_count,
                           "a rank disagrees with itself");
    for (std::size_t i = 0; i < received.box_count; ++i) {
      const auto to = part.own->box(received, i);
      const auto from = part.own->box(*sent, i);
      if (received.accumulate) {
        reduce_box(part.out, to, part.in, from, *part.own->reduce);
      } else {
        copy_box(part.out, to, part.in, from);
      }
    }
  }

  std::shared_ptr<const BatchPacking> packing_;
  std::vector<ExchangePart> parts_;
  std::int64_t rank_;
  at::Tensor sent_;
  at::Tensor received_;
};

}  // namespace

BatchPacking::BatchPacking(Steps parts, std::span<const std::int64_t> elements, const Group& group)
    : sent_(lay_out(parts, elements, group, &RankStep::sends)),
      received_(lay_out(parts, elements, group, &RankStep::receives)) {}

PendingPtr packed_batch_exchange(Transport& transport, std::shared_ptr<const BatchPacking> packing,
                                 std::vector<ExchangePart> parts, std::int64_t rank) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto round = std::make_shared<BatchRound>(std::move(packing), std::move(parts), rank);
  return std::make_shared<AfterPending>(round->start(transport), [round] {
    const at::AutoDispatchBelowADInplaceOrView below;
    round->finish();
  });
}

}  // namespace tessera::detail
