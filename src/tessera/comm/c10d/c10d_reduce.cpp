#include <numeric>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/c10d/c10d_transport.h"
#include "tessera/comm/c10d/channel.h"
#include "tessera/layout/chunk.h"

// The reductions of C10dTransport.
namespace tessera::detail {
namespace {

using Counts = std::vector<std::int64_t>;

/// Up to this size gathering everybody's tensor is faster than exchanging chunks in two steps.
constexpr std::int64_t kGatherBytes = 64 * 1024;

c10d::ReduceOp::RedOpType to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return c10d::ReduceOp::SUM;
    case ReduceOp::product:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::min:
      return c10d::ReduceOp::MIN;
    case ReduceOp::max:
      return c10d::ReduceOp::MAX;
    case ReduceOp::band:
      return c10d::ReduceOp::BAND;
    case ReduceOp::bor:
      return c10d::ReduceOp::BOR;
    case ReduceOp::bxor:
      return c10d::ReduceOp::BXOR;
  }
  return c10d::ReduceOp::UNUSED;
}

/// Whether gloo and mpi reduce this as ATen does.
bool reduces_alike(at::ScalarType type, ReduceOp op) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
      // Not min and max: those of the engines lose NaN.
      return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::product;
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return op != ReduceOp::avg;
    default:
      return false;
  }
}

void check_reducible(at::ScalarType type, ReduceOp op) {
  const bool is_bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  TESSERA_CHECK(!is_bitwise || !(at::isFloatingType(type) || at::isComplexType(type)),
                to_string(op), " of dtype ", c10::toString(type),
                " given; bitwise ops need an integer dtype or bool");
  TESSERA_CHECK(op != ReduceOp::avg || at::isFloatingType(type) || at::isComplexType(type),
                "avg of dtype ", c10::toString(type),
                " given; averages need a floating or complex dtype: convert first or use sum");
}

/// `out` becomes the reduction of `members` parts of its size that lie one behind the other.
void reduce_parts(const at::Tensor& out, const at::Tensor& parts, std::int64_t members,
                  ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const std::int64_t count = out.numel();
  copy_flat(out, 0, parts, 0, count);
  for (std::int64_t i = 1; i < members; ++i) {
    reduce_flat(out, 0, parts, i * count, count, op);
  }
  if (op == ReduceOp::avg) divide(out, members);
}

}  // namespace

PendingPtr C10dTransport::all_reduce(const at::Tensor& data, ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_reducible(data.scalar_type(), op);
  if (all_reduce_small(data, op)) return std::make_shared<DonePending>();
  const WatchedCall call = begin("all_reduce");
  if (data.numel() == 0) return std::make_shared<DonePending>();
  if (reduces_alike(data.scalar_type(), op)) return reduce_natively(call, data, op);
  if (static_cast<std::int64_t>(data.nbytes()) <= kGatherBytes) {
    return reduce_gathered(call, data, op);
  }
  reduce_in_chunks(call, data, op);
  return std::make_shared<DonePending>();
}

PendingPtr C10dTransport::reduce_natively(const WatchedCall& call, const at::Tensor& data,
                                          ReduceOp op) {
  c10d::AllreduceOptions options;
  options.reduceOp = to_c10d(op);
  options.timeout = channel_->watch().timeout();
  std::vector<at::Tensor> tensors = {data.view({-1})};
  auto work = channel_->start(
      call, [&](c10d::Backend& backend) { return backend.allreduce(tensors, options); });
  std::function<void()> finish;
  if (op == ReduceOp::avg) finish = [data, members = size()] { divide(data, members); };
  return std::make_shared<ChannelPending>(channel_, call, std::move(work), std::move(finish));
}

PendingPtr C10dTransport::reduce_gathered(const WatchedCall& call, const at::Tensor& data,
                                          ReduceOp op) {
  const at::Tensor parts = at::empty({size() * data.numel()}, data.options());
  const Counts counts(static_cast<std::size_t>(size()), data.numel());
  return gather_parts(call, parts, data, counts, [data, parts, members = size(), op] {
    reduce_parts(data, parts, members, op);
  });
}

// Every member reduces one chunk, then all collect the chunks. The second step must come in the
// same order on all members, so it cannot be left to whenever each of them waits.
void C10dTransport::reduce_in_chunks(const WatchedCall& call, const at::Tensor& data, ReduceOp op) {
  Counts counts;
  for (std::int64_t i = 0; i < size(); ++i) {
    counts.push_back(chunk_extent(data.numel(), size(), i).size);
  }
  const at::Tensor chunk = at::empty({counts[member_]}, data.options());
  scatter_reduced(call, chunk, data, counts, op)->wait();
  gather_parts(call, data, chunk, counts, nullptr)->wait();
}

PendingPtr C10dTransport::reduce_scatter(const at::Tensor& out, const at::Tensor& in,
                                         std::span<const std::int64_t> counts, ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_reducible(in.scalar_type(), op);
  if (reduce_scatter_small(out, in, counts, op)) return std::make_shared<DonePending>();
  const WatchedCall call = begin("reduce_scatter_tensor");
  const Counts sizes(counts.begin(), counts.end());
  const bool is_native =
      channel_->traits().takes_uneven_lists && reduces_alike(in.scalar_type(), op);
  if (!is_native) return scatter_reduced(call, out, in, sizes, op);
  std::vector<std::vector<at::Tensor>> parts(1);
  std::int64_t begin = 0;
  for (const auto count : sizes) {
    parts[0].push_back(in.view({-1}).narrow(0, begin, count));
    begin += count;
  }
  std::vector<at::Tensor> outputs = {out.view({-1})};
  c10d::ReduceScatterOptions options;
  options.reduceOp = to_c10d(op);
  options.timeout = channel_->watch().timeout();
  auto work = channel_->start(call, [&](c10d::Backend& backend) {
    return backend.reduce_scatter(outputs, parts, options);
  });
  std::function<void()> finish;
  if (op == ReduceOp::avg) finish = [out, members = size()] { divide(out, members); };
  return std::make_shared<ChannelPending>(channel_, call, std::move(work), std::move(finish));
}

// gloo's own reduce-scatter takes four times as long as this for 64 MB on four ranks.
PendingPtr C10dTransport::scatter_reduced(const WatchedCall& call, const at::Tensor& out,
                                          const at::Tensor& in, const Counts& counts, ReduceOp op) {
  const at::Tensor parts = at::empty({size() * out.numel()}, out.options());
  const Counts receive_counts(counts.size(), out.numel());
  return exchange_parts(
      call, parts, in, receive_counts, counts,
      [out, parts, in, members = size(), op] { reduce_parts(out, parts, members, op); });
}

}  // namespace tessera::detail
