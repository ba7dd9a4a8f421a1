#include "tessera/comm/exchange_boxes.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/large_memory.h"
#include "tessera/comm/packed_exchange.h"
#include "tessera/comm/pending_tensor.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/world_state.h"
#include "tessera/plan/box_exchange.h"

namespace tessera::detail {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The values of the pieces as they lie in memory.
Tensors plain(const Tensors& pieces) {
  Tensors result;
  for (const auto& piece : pieces) {
    settle(piece);
    result.push_back(piece.is_conj() || piece.is_neg() ? piece.resolve_conj().resolve_neg()
                                                       : piece);
  }
  return result;
}

/// The only piece, or an empty tensor.
at::Tensor only(const Tensors& pieces, const at::TensorOptions& options) {
  return pieces.empty() ? at::empty({0}, options) : pieces.front();
}

const Message* message_of(const std::vector<Message>& messages, std::int64_t peer) {
  const auto found = std::find_if(messages.begin(), messages.end(),
                                  [&](const Message& message) { return message.peer == peer; });
  return found == messages.end() ? nullptr : &*found;
}

/// One side of an exchange between ranks with several pieces: a flat buffer with one message per
/// member, what stays on the rank left out.
class PackedSide {
 public:
  PackedSide(const BoxExchange& plan, const std::vector<Message>& messages, const Tensors& pieces,
             const Group& group, const at::TensorOptions& options)
      : plan_(plan), pieces_(pieces) {
    const std::int64_t own = group.ranks()[static_cast<std::size_t>(group.index())];
    for (const auto rank : group.ranks()) {
      const Message* message = rank == own ? nullptr : message_of(messages, rank);
      by_member_.push_back(message);
      counts.push_back(message == nullptr ? 0 : message->numel);
    }
    buffer = new_tensor({std::accumulate(counts.begin(), counts.end(), std::int64_t{0})}, options);
  }

  /// Calls visit(piece, box of it, the box's place in the buffer).
  template <typename Visit>
  void for_each_box(const Visit& visit) const {
    std::int64_t begin = 0;
    for (const Message* message : by_member_) {
      for (std::size_t i = 0; message != nullptr && i < message->box_count; ++i) {
        const auto box = plan_.step.box(*message, i);
        Shape shape;
        for (const auto& extent : box) shape.push_back(extent.size);
        const std::int64_t numel = c10::multiply_integers(shape);
        visit(pieces_[plan_.pieces[message->first_box + i]], box,
              buffer.narrow(0, begin, numel).view(shape));
        begin += numel;
      }
    }
  }

  std::vector<std::int64_t> counts;
  at::Tensor buffer;

 private:
  const BoxExchange& plan_;
  const Tensors& pieces_;
  std::vector<const Message*> by_member_;
};

std::vector<Extent> all_of(std::span<const Extent> box) {
  std::vector<Extent> whole;
  for (const auto& extent : box) whole.push_back({0, extent.size});
  return whole;
}

/// Copies what stays on the rank from piece to piece.
void keep_own(const BoxExchange& plan, const Tensors& out, const Tensors& in, std::int64_t rank) {
  const Message* sent = message_of(plan.step.sends, rank);
  const Message* kept = message_of(plan.step.receives, rank);
  if (sent == nullptr || kept == nullptr) return;
  for (std::size_t i = 0; i < kept->box_count; ++i) {
    copy_box(out[plan.pieces[kept->first_box + i]], plan.step.box(*kept, i),
             in[plan.pieces[sent->first_box + i]], plan.step.box(*sent, i));
  }
}

void exchange_packed(const BoxExchange& plan, const BoxMove& move, const Tensors& out,
                     const Tensors& in, const at::TensorOptions& options, std::int64_t rank) {
  const PackedSide sent(plan, plan.step.sends, in, move.group, options);
  const PackedSide received(plan, plan.step.receives, out, move.group, options);
  sent.for_each_box([](const at::Tensor& piece, std::span<const Extent> box, const at::Tensor& at) {
    copy_box(at, all_of(box), piece, box);
  });
  const auto pending =
      connect(move.group).all_to_all(received.buffer, sent.buffer, received.counts, sent.counts);
  keep_own(plan, out, in, rank);
  pending->wait();
  received.for_each_box([](const at::Tensor& piece, std::span<const Extent> box,
                           const at::Tensor& at) { copy_box(piece, box, at, all_of(box)); });
}

void check_shapes(const BoxMap& map, const Tensors& pieces, std::int64_t rank) {
  const auto held = map.held_by(rank);
  TESSERA_INTERNAL_CHECK(held.size() == pieces.size(), held.size(), " pieces expected, ",
                         pieces.size(), " given");
  for (std::size_t i = 0; i < held.size(); ++i) {
    TESSERA_INTERNAL_CHECK(pieces[i].sizes() == at::IntArrayRef(held[i].shape()), "box ", held[i],
                           " and a piece of [", joined(pieces[i].sizes(), ","), "]");
  }
}

}  // namespace

Tensors new_pieces(const BoxMap& map, std::int64_t rank, const at::TensorOptions& options) {
  Tensors pieces;
  for (const auto& box : map.held_by(rank)) pieces.push_back(new_tensor(box.shape(), options));
  return pieces;
}

void exchange_boxes(const BoxMove& move, const Tensors& out, const Tensors& in_given,
                    const at::TensorOptions& options) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto state = world_of(move.group);
  const SoleUse use(*state, move.cause.c_str());
  const World world(state);
  const std::int64_t rank = world.rank();
  const Tensors in = plain(in_given);
  check_shapes(move.from, in, rank);
  check_shapes(move.to, out, rank);
  auto plan = std::make_shared<BoxExchange>(plan_box_exchange(move.from, move.to, rank));
  if (!needs_traffic(move.from, move.to)) {
    keep_own(*plan, out, in, rank);
    return;
  }
  const auto element = static_cast<std::int64_t>(options.dtype().itemsize());
  const CauseScope cause(move.cause);
  const CommRecorder recorder("all_to_all_single", move.group, plan->sent_numel * element,
                              plan->received_numel * element);
  Transport& transport = connect(move.group);
  if (world.options().check) {
    transport.check({"redistribute", concat(move.cause, ' ', options.dtype().name(), '[',
                                            joined(move.from.shape(), ","), ']')});
  }
  if (move.from.most_pieces() > 1 || move.to.most_pieces() > 1) {
    exchange_packed(*plan, move, out, in, options, rank);
    return;
  }
  // At most one piece everywhere: the step is one of those that engines know.
  const std::shared_ptr<const RankStep> step(plan, &plan->step);
  const at::Tensor to = only(out, options);
  const at::Tensor from = only(in, options);
  if (transport.exchanges_directly()) {
    transport.exchange(to, from, step)->wait();
  } else {
    packed_exchange(transport, move.group, step, to, from)->wait();
  }
}

}  // namespace tessera::detail
