#include <numeric>

#include <ATen/ops/empty.h>

#include "tessera/comm/box_copy.h"
#include "tessera/comm/collectives_carrier.h"
#include "tessera/comm/collectives_issue.h"

namespace tessera::detail {
namespace {

Sizes scaled(Sizes counts, std::int64_t factor) {
  for (auto& count : counts) count *= factor;
  return counts;
}

/// Reduces contributions of equal size that lie one behind the other, in that order.
void reduce_contributions(const at::Tensor& out, const at::Tensor& all, ReduceOp op) {
  const std::int64_t count = out.numel();
  if (count == 0) return;
  copy_flat(out, 0, all, 0, count);
  for (std::int64_t first = count; first < all.numel(); first += count) {
    reduce_flat(out, 0, all, first, count, op);
  }
  if (op == ReduceOp::avg) divide(out, all.numel() / count);
}

/// Copies of tensors of one dtype in one contiguous tensor; for a single one, that copy itself.
struct Copies {
  explicit Copies(const Tensors& originals) {
    const at::TensorOptions options = originals.front().options();
    if (originals.size() == 1) {
      tensors.push_back(at::empty(originals.front().sizes(), options).copy_(originals.front()));
      flat = tensors.front().view({originals.front().numel()});
      return;
    }
    std::int64_t total = 0;
    for (const auto& original : originals) total += original.numel();
    flat = at::empty({total}, options);
    std::int64_t first = 0;
    for (const auto& original : originals) {
      tensors.push_back(flat.narrow(0, first, original.numel()).view(original.sizes()));
      tensors.back().copy_(original);
      first += original.numel();
    }
  }

  at::Tensor flat;
  Tensors tensors;
};

/// Issues the reduction of `data`, in place.
class AllReduceMessage {
 public:
  AllReduceMessage(const Call& call, at::Tensor data, ReduceOp op)
      : call_(call),
        carrier_(call.transport(), data, op),
        data_(std::move(data)),
        carried_(carrier_.carried(data_)) {}

  /// What this rank sends, and receives as much.
  [[nodiscard]] std::int64_t moved_bytes() const {
    const std::int64_t n = call_.size();
    if (carrier_.gathers()) return (n - 1) * bytes_of(carried_);
    const std::int64_t elements = 2 * (carried_.numel() - carried_.numel() / n);
    return elements * static_cast<std::int64_t>(carried_.element_size());
  }

  void issue(Issued& issued) const {
    if (data_.numel() == 0) return;
    Transport& transport = call_.transport();
    if (!carrier_.gathers()) {
      issued.add(transport.all_reduce(carried_, carrier_.op()));
      issued.then([data = data_, carrier = carrier_, carried = carried_] {
        carrier.deliver(carried, data);
      });
      return;
    }
    const at::Tensor all = at::empty({call_.size() * carried_.numel()}, carried_.options());
    const Sizes counts(static_cast<std::size_t>(call_.size()), bytes_of(carried_));
    issued.add(transport.all_gather(as_bytes(all), as_bytes(carried_), counts));
    issued.then([data = data_, carrier = carrier_, carried = carried_, all] {
      reduce_contributions(carried, all, carrier.op());
      carrier.deliver(carried, data);
    });
  }

 private:
  const Call& call_;
  Carrier carrier_;
  at::Tensor data_;
  at::Tensor carried_;
};

/// Issues the reduction of packed pieces of tensors of one dtype.
class ReduceScatterMessage {
 public:
  ReduceScatterMessage(const Call& call, const Tensors& tensors, const Cuts& cuts, ReduceOp op)
      : call_(call),
        carrier_(call.transport(), tensors.front(), op),
        in_(carrier_.carried(pack(tensors, cuts))),
        out_(std::make_shared<Arrival>(tensors, own_cuts(cuts, call.index()))),
        room_(carrier_.room_for(out_->flat)),
        counts_(scaled(piece_counts(tensors, cuts), carrier_.width())) {}

  [[nodiscard]] const Tensors& results() const { return out_->tensors; }
  [[nodiscard]] std::int64_t sent_bytes() const { return bytes_of(in_) - bytes_of(room_); }
  [[nodiscard]] std::int64_t received_bytes() const { return (call_.size() - 1) * bytes_of(room_); }

  void issue(Issued& issued) const {
    if (in_.numel() == 0) return;
    Transport& transport = call_.transport();
    at::Tensor all;
    if (carrier_.gathers()) {
      all = at::empty({call_.size() * room_.numel()}, room_.options());
      const Sizes receive_counts(counts_.size(), bytes_of(room_));
      issued.add(transport.all_to_all(as_bytes(all), as_bytes(in_), receive_counts,
                                      in_bytes(counts_, in_)));
    } else {
      issued.add(transport.reduce_scatter(room_, in_, counts_, carrier_.op()));
    }
    issued.then([carrier = carrier_, in = in_, out = out_, room = room_, all] {
      if (all.defined()) reduce_contributions(room, all, carrier.op());
      carrier.deliver(room, out->flat);
      out->unpack();
    });
  }

 private:
  static Cuts own_cuts(const Cuts& cuts, std::int64_t index) {
    Cuts own;
    for (const auto& cut : cuts) {
      own.push_back({cut.dim, {cut.sizes[static_cast<std::size_t>(index)]}});
    }
    return own;
  }

  const Call& call_;
  Carrier carrier_;
  at::Tensor in_;
  std::shared_ptr<Arrival> out_;
  at::Tensor room_;
  Sizes counts_;
};

/// In a group of one every reduction is a copy.
IssuedPtr issue_copies(const Call& call, const Tensors& tensors) {
  auto issued = std::make_shared<Issued>();
  issued->record(call, 0, 0);
  for (const auto& tensor : tensors) issued->results.push_back(Copies({tensor}).tensors.front());
  return issued;
}

}  // namespace

IssuedPtr issue_all_reduce(const Call& call, const Tensors& tensors, ReduceOp op) {
  if (call.is_alone()) return issue_copies(call, tensors);
  auto issued = std::make_shared<Issued>();
  issued->results.resize(tensors.size());
  std::vector<AllReduceMessage> messages;
  std::int64_t moved = 0;
  for (const auto& positions : group_by_dtype(tensors)) {
    const Copies copies(select(tensors, positions));
    for (std::size_t i = 0; i < positions.size(); ++i) {
      issued->results[positions[i]] = copies.tensors[i];
    }
    moved += messages.emplace_back(call, copies.flat, op).moved_bytes();
  }
  issued->record(call, moved, moved);
  for (const auto& message : messages) message.issue(*issued);
  return issued;
}

IssuedPtr issue_reduce_scatter(const Call& call, const Tensors& tensors, const Cuts& cuts,
                               ReduceOp op) {
  if (call.is_alone()) return issue_copies(call, tensors);
  auto issued = std::make_shared<Issued>();
  issued->results.resize(tensors.size());
  std::vector<ReduceScatterMessage> messages;
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (const auto& positions : group_by_dtype(tensors)) {
    const auto& message =
        messages.emplace_back(call, select(tensors, positions), select(cuts, positions), op);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      issued->results[positions[i]] = message.results()[i];
    }
    sent += message.sent_bytes();
    received += message.received_bytes();
  }
  issued->record(call, sent, received);
  for (const auto& message : messages) message.issue(*issued);
  return issued;
}

}  // namespace tessera::detail
