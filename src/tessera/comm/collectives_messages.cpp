#include <cstring>
#include <numeric>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "tessera/comm/collectives.h"
#include "tessera/comm/collectives_issue.h"
#include "tessera/comm/message_tag.h"
#include "tessera/comm/pending_tensor.h"
#include "tessera/comm/recorder.h"

// Barrier, send, recv, bytes, and waiting.

namespace tessera {
namespace {

using detail::Call;
using detail::Sizes;

/// Checks one end of a message between two members, and lets the other end compare it.
void announce_message(Call& call, const at::Tensor& x, std::int64_t peer, std::int64_t tag) {
  call.require(peer != call.index(), "member ", peer,
               " given, which is the calling one; a rank cannot exchange messages with itself");
  call.require(tag >= 0 && tag <= detail::kLargestTag, "tag ", tag, " given; it must be from 0 to ",
               detail::kLargestTag);
  // The other members do not take part, so nobody else can be told.
  call.throw_alone();
  if (!call.is_compared()) return;
  call.transport().check({call.name(), detail::describe(x) + " tag " + std::to_string(tag)});
}

}  // namespace

void barrier(const Group& group) {
  Call call("barrier", "barrier", group);
  call.agree([] { return std::string(); });
  const detail::CommRecorder recorder(call.name(), group, 0, 0, call.begin());
  if (!call.is_alone()) call.transport().barrier();
}

void send(const at::Tensor& x, std::int64_t destination, const Group& group, std::int64_t tag) {
  Call call("send", "send", group);
  detail::require_tensor(call, x);
  detail::require_member(call, destination, "destination");
  announce_message(call, x, destination, tag);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor bytes = detail::as_bytes(detail::flattened(x));
  const detail::CommRecorder recorder(call.name(), group, bytes.numel(), 0, call.begin());
  call.transport().send(bytes, destination, tag)->wait();
}

at::Tensor recv(const at::Tensor& like, std::int64_t source, const Group& group, std::int64_t tag,
                const CollectiveOptions& options) {
  Call call("recv", "recv", group);
  detail::require_tensor(call, like, "like");
  detail::require_member(call, source, "source");
  announce_message(call, like, source, tag);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor out = at::empty(like.sizes(), like.options());
  const at::Tensor bytes = detail::as_bytes(out.view({out.numel()}));
  const auto issued = std::make_shared<detail::Issued>();
  issued->record(call, 0, bytes.numel());
  issued->add(call.transport().receive(bytes, source, tag));
  if (options.async_op) return detail::make_pending_tensor(out, issued, call.world());
  issued->wait();
  return out;
}

std::vector<std::string> all_gather_object(const std::string& bytes, const Group& group) {
  Call call("all_gather_object", "all_gather_object", group);
  const auto own_size = static_cast<std::int64_t>(bytes.size());
  const Sizes sizes = call.share([] { return std::string(); }, {own_size}, 1);
  const auto total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const detail::CommRecorder recorder(call.name(), group, (call.size() - 1) * own_size,
                                      total - own_size, call.begin());
  const at::Tensor in = at::empty({own_size}, at::kByte);
  // An empty tensor has no address.
  if (own_size > 0) std::memcpy(in.data_ptr(), bytes.data(), bytes.size());
  const at::Tensor out = call.is_alone() ? in : at::empty({total}, at::kByte);
  if (!call.is_alone() && total > 0) call.transport().all_gather(out, in, sizes)->wait();
  std::vector<std::string> all;
  const char* from = static_cast<const char*>(out.const_data_ptr());
  for (const auto size : sizes) {
    all.emplace_back(from, static_cast<std::size_t>(size));
    from += size;
  }
  return all;
}

at::Tensor wait(const at::Tensor& x) {
  detail::settle(x);
  return x;
}

bool is_pending(const at::Tensor& x) { return detail::is_pending_tensor(x); }

}  // namespace tessera
