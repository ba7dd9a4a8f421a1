#include "tessera/comm/packed_exchange.h"

#include <algorithm>
#include <numeric>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/large_memory.h"

namespace tessera::detail {
namespace {

using Counts = std::vector<std::int64_t>;

/// Elements [begin, begin + size of the box) of a flat buffer, in the box's shape.
at::Tensor shaped(const at::Tensor& buffer, std::int64_t begin, std::span<const Extent> box) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Shape sizes;
  std::int64_t numel = 1;
  for (const auto& extent : box) {
    sizes.push_back(extent.size);
    numel *= extent.size;
  }
  return buffer.narrow(0, begin, numel).view(sizes);
}

/// Calls visit(box, begin) for the boxes of a piece, `begin` counting the elements before it.
template <typename Visit>
void for_each_box(const RankStep::Piece& piece, std::size_t ndim, Visit visit) {
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < piece.box_count; ++i) {
    const auto box = std::span(piece.extents).subspan(i * ndim, ndim);
    visit(box, begin);
    std::int64_t numel = 1;
    for (const auto& extent : box) numel *= extent.size;
    begin += numel;
  }
}

/// True when a box of a contiguous tensor is one run of elements that begins at `begin`.
bool is_run_at(const at::Tensor& tensor, std::span<const Extent> box, std::int64_t begin) {
  std::int64_t offset = 0;
  bool rest_is_whole = false;
  for (std::size_t d = 0; d < box.size(); ++d) {
    const auto dim = static_cast<std::int64_t>(d);
    if (rest_is_whole && box[d].size != tensor.size(dim)) return false;
    rest_is_whole = rest_is_whole || box[d].size != 1;
    offset += box[d].begin * tensor.stride(dim);
  }
  return offset == begin;
}

/// One side of a round: the messages by member, and the flat buffer in which they lie in that order.
class Side {
 public:
  Side(const std::vector<Message>& messages, const RankStep& own, const Group& group,
       std::int64_t round)
      : own_(own), round_(round), own_member_(static_cast<std::size_t>(group.index())) {
    const auto& ranks = group.ranks();
    by_member_.resize(ranks.size(), nullptr);
    for (const auto& message : messages) {
      const auto place = std::find(ranks.begin(), ranks.end(), message.peer);
      TESSERA_INTERNAL_CHECK(place != ranks.end(), "rank ", message.peer, " is not in the group");
      by_member_[static_cast<std::size_t>(place - ranks.begin())] = &message;
    }
  }

  /// True when all messages, the rank's own too, lie in `tensor` as they would in the buffer.
  [[nodiscard]] bool lies_in(const at::Tensor& tensor) const {
    if (own_.rounds != 1 || !tensor.is_contiguous()) return false;
    std::int64_t next = 0;
    for (const auto* message : by_member_) {
      if (message == nullptr) continue;
      if (message->box_count != 1 || !is_run_at(tensor, own_.box(*message, 0), next)) return false;
      next += message->numel;
    }
    return next == tensor.numel();
  }

  /// Makes the buffer, which is `tensor` itself when the messages lie in it. The rank's own message
  /// is part of it, and of the counts, only `with_own`.
  void make_buffer(const at::Tensor& tensor, bool in_place, bool with_own) {
    in_place_ = in_place;
    counts_.assign(by_member_.size(), 0);
    std::int64_t total = 0;
    for (std::size_t i = 0; i < by_member_.size(); ++i) {
      if (by_member_[i] == nullptr || (i == own_member_ && !with_own)) continue;
      counts_[i] = own_.piece(*by_member_[i], round_).numel;
      total += counts_[i];
    }
    buffer_ = in_place ? tensor.view({-1}) : new_tensor({total}, tensor.options());
  }

  /// Calls visit(message, box of the tensor, that part of the buffer) for what is in the buffer.
  template <typename Visit>
  void for_each_part(std::size_t member, const Visit& visit) const {
    const Message* message = by_member_[member];
    if (in_place_ || message == nullptr || counts_[member] == 0) return;
    const auto piece = own_.piece(*message, round_);
    const std::size_t ndim = piece.extents.size() / std::max<std::size_t>(piece.box_count, 1);
    const std::int64_t begin = std::accumulate(
        counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(member), std::int64_t{0});
    for_each_box(piece, ndim, [&](std::span<const Extent> box, std::int64_t at) {
      visit(*message, box, shaped(buffer_, begin + at, box));
    });
  }

  [[nodiscard]] const Message* own_message() const { return by_member_[own_member_]; }
  [[nodiscard]] std::size_t member_of(const Message& message) const {
    return static_cast<std::size_t>(std::find(by_member_.begin(), by_member_.end(), &message) -
                                    by_member_.begin());
  }
  [[nodiscard]] std::size_t size() const { return by_member_.size(); }
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] const at::Tensor& buffer() const { return buffer_; }

 private:
  const RankStep& own_;
  std::int64_t round_;
  std::size_t own_member_;
  std::vector<const Message*> by_member_;
  bool in_place_ = false;
  Counts counts_;
  at::Tensor buffer_;
};

/// One round of a packed exchange.
class Round {
 public:
  Round(const Group& group, std::shared_ptr<const RankStep> own, at::Tensor out, at::Tensor in,
        std::int64_t round)
      : own_(std::move(own)),
        out_(std::move(out)),
        in_(std::move(in)),
        round_(round),
        sent_(own_->sends, *own_, group, round),
        received_(own_->receives, *own_, group, round) {
    const bool from_place = sent_.lies_in(in_);
    const bool to_place = !own_->reduce && received_.lies_in(out_);
    // What is sent, or received, in place is so with what stays on the rank.
    moves_own_ = from_place || to_place;
    sent_.make_buffer(in_, from_place, moves_own_);
    received_.make_buffer(out_, to_place, moves_own_);
  }

  PendingPtr start(Transport& transport) {
    for (std::size_t i = 0; i < sent_.size(); ++i) {
      sent_.for_each_part(i,
                          [&](const Message&, std::span<const Extent> box, const at::Tensor& part) {
                            copy_box(part, whole_box(box), in_, box);
                          });
    }
    return transport.all_to_all(received_.buffer(), sent_.buffer(), received_.counts(),
                                sent_.counts());
  }

  /// Puts what has arrived, and what stays, in its place, in the order of the messages.
  void finish() {
    for (const auto& message : own_->receives) {
      if (&message == received_.own_message() && !moves_own_) {
        keep(message);
      } else {
        unpack(received_.member_of(message));
      }
    }
  }

 private:
  void unpack(std::size_t member) const {
    received_.for_each_part(
        member, [&](const Message& message, std::span<const Extent> box, const at::Tensor& part) {
          put(message, box, part, whole_box(box));
        });
  }

  /// Moves what stays on the rank straight to its new place.
  void keep(const Message& message) const {
    const auto to = own_->piece(message, round_);
    const auto from = own_->piece(*sent_.own_message(), round_);
    TESSERA_INTERNAL_CHECK(to.box_count == from.box_count, "a rank disagrees with itself");
    for (std::size_t i = 0; i < to.box_count; ++i) {
      const std::size_t ndim = to.extents.size() / to.box_count;
      put(message, std::span(to.extents).subspan(i * ndim, ndim), in_,
          std::span(from.extents).subspan(i * ndim, ndim));
    }
  }

  void put(const Message& message, std::span<const Extent> box, const at::Tensor& from,
           std::span<const Extent> from_box) const {
    if (message.accumulate) {
      reduce_box(out_, box, from, from_box, *own_->reduce);
    } else {
      copy_box(out_, box, from, from_box);
    }
  }

  std::shared_ptr<const RankStep> own_;
  at::Tensor out_;
  at::Tensor in_;
  std::int64_t round_;
  Side sent_;
  Side received_;
  bool moves_own_ = false;
};

template <typename Visit>
void for_each_part(const Shape& shape, std::span<const std::int64_t> sizes, std::int64_t dim,
                   Visit visit) {
  std::int64_t flat = 0;
  std::int64_t begin = 0;
  for (const auto size : sizes) {
    std::vector<Extent> box;
    std::int64_t numel = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const bool cut = static_cast<std::int64_t>(d) == dim;
      box.push_back(cut ? Extent{begin, size} : Extent{0, shape[d]});
      numel *= box.back().size;
    }
    visit(std::span<const Extent>(box), flat);
    flat += numel;
    begin += size;
  }
}

}  // namespace

PendingPtr packed_exchange(Transport& transport, const Group& group,
                           std::shared_ptr<const RankStep> own, const at::Tensor& out,
                           const at::Tensor& in) {
  if (own->fill_identity) fill_with_identity(out, *own->fill_identity);
  const std::int64_t rounds = own->rounds;
  for (std::int64_t i = 0; i + 1 < rounds; ++i) {
    Round round(group, own, out, in, i);
    round.start(transport)->wait();
    round.finish();
  }
  const auto last = std::make_shared<Round>(group, own, out, in, rounds - 1);
  return std::make_shared<AfterPending>(last->start(transport), [last, out, own] {
    last->finish();
    divide(out, own->divisor);
  });
}

PendingPtr Transport::all_reduce_into(const at::Tensor& out, const at::Tensor& in, ReduceOp op) {
  copy_whole(out, in);
  return all_reduce(out, op);
}

PendingPtr Transport::exchange(const at::Tensor& /*out*/, const at::Tensor& /*in*/,
                               std::shared_ptr<const RankStep> /*own*/) {
  throw InternalError("this engine cannot exchange directly");
}

std::vector<Extent> whole_box(std::span<const Extent> box) {
  std::vector<Extent> whole;
  for (const auto& extent : box) whole.push_back({0, extent.size});
  return whole;
}

void copy_whole(const at::Tensor& out, const at::Tensor& in) {
  std::vector<Extent> box;
  for (const auto size : in.sizes()) box.push_back({0, size});
  copy_box(out, box, in, box);
}

void unpack_parts(const at::Tensor& out, const at::Tensor& packed, const Shape& shape,
                  std::span<const std::int64_t> sizes, std::int64_t dim) {
  for_each_part(shape, sizes, dim, [&](std::span<const Extent> box, std::int64_t begin) {
    copy_box(out, box, shaped(packed, begin, box), whole_box(box));
  });
}

void pack_parts(const at::Tensor& packed, const at::Tensor& in, const Shape& shape,
                std::span<const std::int64_t> sizes, std::int64_t dim) {
  for_each_part(shape, sizes, dim, [&](std::span<const Extent> box, std::int64_t begin) {
    copy_box(shaped(packed, begin, box), whole_box(box), in, box);
  });
}

}  // namespace tessera::detail
