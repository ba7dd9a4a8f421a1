#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "tessera/comm/collectives_issue.h"

namespace tessera::detail {
namespace {

/// One message of an all-gather: the pieces of tensors of one dtype.
struct GatherMessage {
  GatherMessage(const Tensors& tensors, const Cuts& cuts)
      : in(flattened(tensors)),
        out(std::make_shared<Arrival>(tensors, cuts)),
        counts(in_bytes(piece_counts(tensors, cuts), in)) {}

  at::Tensor in;
  std::shared_ptr<Arrival> out;
  Sizes counts;
};

}  // namespace

void Issued::record(const Call& call, std::int64_t sent_bytes, std::int64_t received_bytes) {
  recorder_.emplace(call.name(), call.group(), sent_bytes, received_bytes, call.begin());
}

void Issued::wait() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& pending : pending_) pending->wait();
  pending_.clear();
  for (const auto& step : steps_) step();
  steps_.clear();
  recorder_.reset();
}

bool Issued::is_done() {
  return std::all_of(pending_.begin(), pending_.end(),
                     [](const auto& pending) { return pending->is_done(); });
}

IssuedPtr issue_all_gather(const Call& call, const Tensors& tensors, const Cuts& cuts) {
  auto issued = std::make_shared<Issued>();
  issued->results.resize(tensors.size());
  std::vector<GatherMessage> messages;
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (const auto& positions : group_by_dtype(tensors)) {
    const auto& message =
        messages.emplace_back(select(tensors, positions), select(cuts, positions));
    sent += (call.size() - 1) * bytes_of(message.in);
    received += bytes_of(message.out->flat) - bytes_of(message.in);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      issued->results[positions[i]] = message.out->tensors[i];
    }
  }
  issued->record(call, sent, received);
  for (const auto& message : messages) {
    if (call.is_alone()) {
      message.out->flat.copy_(message.in);
    } else if (sum(message.counts) > 0) {
      issued->add(call.transport().all_gather(as_bytes(message.out->flat), as_bytes(message.in),
                                              message.counts));
    }
    issued->then([in = message.in, out = message.out] { out->unpack(); });
  }
  return issued;
}

IssuedPtr issue_all_to_all(const Call& call, const at::Tensor& x, const Sizes& receive_splits,
                           const Sizes& send_splits, bool moves) {
  auto issued = std::make_shared<Issued>();
  const at::Tensor in = flattened(x);
  const at::Tensor out = at::empty(resized(x.sizes(), 0, sum(receive_splits)), x.options());
  const auto counts_of = [&](const Sizes& splits) {
    return in_bytes(piece_counts({x}, {{0, splits}}), x);
  };
  const Sizes receive_counts = counts_of(receive_splits);
  const Sizes send_counts = counts_of(send_splits);
  const std::int64_t kept = send_counts[at_index(call.index())];
  issued->record(call, bytes_of(in) - kept, bytes_of(out) - kept);
  const at::Tensor flat_out = out.view({out.numel()});
  if (call.is_alone()) {
    flat_out.copy_(in);
  } else if (moves) {
    issued->add(
        call.transport().all_to_all(as_bytes(flat_out), as_bytes(in), receive_counts, send_counts));
  }
  issued->then([in] {});
  issued->results = {out};
  return issued;
}

IssuedPtr issue_broadcast(const Call& call, const at::Tensor& x, std::int64_t root) {
  auto issued = std::make_shared<Issued>();
  const bool is_root = call.index() == root;
  const at::Tensor out = at::empty(x.sizes(), x.options());
  if (is_root) out.copy_(x);
  issued->record(call, is_root ? (call.size() - 1) * bytes_of(out) : 0,
                 is_root ? 0 : bytes_of(out));
  if (!call.is_alone() && out.numel() > 0) {
    issued->add(call.transport().broadcast(as_bytes(out.view({out.numel()})), root));
  }
  issued->results = {out};
  return issued;
}

IssuedPtr issue_scatter(const Call& call, const at::Tensor& x, const Cut& cut, std::int64_t root,
                        const std::optional<Sizes>& shape) {
  auto issued = std::make_shared<Issued>();
  const bool is_root = call.index() == root;
  const at::Tensor in = is_root ? pack({x}, {cut}) : at::empty({0}, x.options());
  const Sizes own = resized(x.sizes(), cut.dim, cut.sizes[at_index(call.index())]);
  const at::Tensor out = at::empty(shape.value_or(own), x.options());
  const Sizes counts = in_bytes(piece_counts({x}, {cut}), x);
  issued->record(call, is_root ? bytes_of(in) - bytes_of(out) : 0, is_root ? 0 : bytes_of(out));
  const at::Tensor flat_out = out.view({out.numel()});
  if (call.is_alone()) {
    flat_out.copy_(in);
  } else if (sum(counts) > 0) {
    issued->add(call.transport().scatter(as_bytes(flat_out), as_bytes(in), counts, root));
  }
  issued->then([in] {});
  issued->results = {out};
  return issued;
}

IssuedPtr issue_gather(const Call& call, const at::Tensor& x, const Cut& cut, std::int64_t root) {
  auto issued = std::make_shared<Issued>();
  const bool is_root = call.index() == root;
  const at::Tensor in = flattened(x);
  const Cut arriving{cut.dim, is_root ? cut.sizes : Sizes(cut.sizes.size(), 0)};
  const auto out = std::make_shared<Arrival>(Tensors{x}, Cuts{arriving});
  issued->record(call, is_root ? 0 : bytes_of(in),
                 is_root ? bytes_of(out->flat) - bytes_of(in) : 0);
  const Sizes counts = in_bytes(piece_counts({x}, {cut}), x);
  if (call.is_alone()) {
    out->flat.copy_(in);
  } else if (sum(counts) > 0) {
    issued->add(call.transport().gather(as_bytes(out->flat), as_bytes(in), counts, root));
  }
  issued->then([in, out] { out->unpack(); });
  issued->results = {out->tensors.front()};
  return issued;
}

IssuedPtr issue_permute(const Call& call, const at::Tensor& x, const Sizes& destinations) {
  auto issued = std::make_shared<Issued>();
  const auto own = at_index(call.index());
  const std::int64_t destination = destinations[own];
  const auto source = std::find(destinations.begin(), destinations.end(), call.index());
  const bool receives = source != destinations.end();
  const at::Tensor out = receives ? at::empty(x.sizes(), x.options())
                                  : at::zeros_like(x, at::MemoryFormat::Contiguous);
  const at::Tensor in = destination >= 0 ? flattened(x) : at::empty({0}, x.options());
  Sizes send_counts(destinations.size(), 0);
  Sizes receive_counts(destinations.size(), 0);
  if (destination >= 0) send_counts[at_index(destination)] = bytes_of(in);
  if (receives) receive_counts[at_index(source - destinations.begin())] = bytes_of(out);
  issued->record(call, destination == call.index() ? 0 : sum(send_counts),
                 destination == call.index() ? 0 : sum(receive_counts));
  const at::Tensor flat_out = out.view({out.numel()}).narrow(0, 0, receives ? out.numel() : 0);
  if (call.is_alone()) {
    flat_out.copy_(in);
  } else if (x.numel() > 0) {
    issued->add(
        call.transport().all_to_all(as_bytes(flat_out), as_bytes(in), receive_counts, send_counts));
  }
  issued->then([in] {});
  issued->results = {out};
  return issued;
}

}  // namespace tessera::detail
