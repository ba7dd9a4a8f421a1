#include "tessera/comm/step_runner.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/large_memory.h"
#include "tessera/comm/packed_exchange.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {
namespace {

/// The name under which c10d, and so `CommDebugMode`, knows a step.
const char* comm_name(StepKind kind) {
  switch (kind) {
    case StepKind::all_gather:
      return "all_gather_into_tensor";
    case StepKind::reduce_scatter:
      return "reduce_scatter_tensor";
    case StepKind::all_reduce:
      return "all_reduce";
    case StepKind::all_to_all:
    case StepKind::exchange:
    case StepKind::slice:
    case StepKind::fill:
      return "all_to_all_single";
  }
  return "";
}

/// What the contributions of a native reduction must be divided by, and the op that reduces them.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  std::int64_t divisor = 1;

  explicit Reduction(const Step& step) {
    for (const auto dim : step.mesh_dims) {
      op = std::get<Partial>(step.from.placements()[static_cast<std::size_t>(dim)]).op;
      if (op == ReduceOp::avg) divisor *= step.from.mesh().size(dim);
    }
    if (divisor > 1) op = ReduceOp::sum;
  }
};

/// True when the shards of tensor dim `dim` of a contiguous tensor lie one behind the other.
bool is_outermost(const Shape& shape, std::int64_t dim) {
  return std::all_of(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(dim),
                     [](std::int64_t size) { return size <= 1; });
}

/// What each member of the group holds along the step's tensor dim, in the layout given.
std::vector<std::int64_t> sizes_along(const Step& step, const Layout& layout, const Group& group) {
  std::vector<std::int64_t> sizes;
  for (const auto member : group.ranks()) {
    sizes.push_back(layout.local_size(step.tensor_dim, *layout.mesh().position_of(member)));
  }
  return sizes;
}

/// The same as numbers of elements, where all members together hold `numel` in `shape`.
std::vector<std::int64_t> counts_along(const std::vector<std::int64_t>& sizes, const Step& step,
                                       const Shape& shape, std::int64_t numel) {
  const auto whole = shape[static_cast<std::size_t>(step.tensor_dim)];
  auto counts = sizes;
  for (auto& count : counts) count *= numel / std::max<std::int64_t>(whole, 1);
  return counts;
}

/// A step with traffic, under way.
class RunningStep : public Pending {
 public:
  RunningStep(const Route::Leg& leg, at::Tensor out, at::Tensor in)
      : recorder_(std::in_place, comm_name(leg.step->kind), *leg.group, leg.traffic.sent_bytes,
                  leg.traffic.received_bytes),
        out_(std::move(out)),
        in_(std::move(in)) {}

  void start(Route& route, Route::Leg& leg, bool announce) {
    Transport& transport = connect(*leg.group);
    if (announce) transport.check(route.fingerprint);
    if (leg.step->kind == StepKind::all_reduce) {
      start_all_reduce(transport, *leg.step);
    } else if (transport.exchanges_directly()) {
      inner_ = transport.exchange(out_, in_, messages_of(route, leg));
    } else if (leg.step->kind == StepKind::all_gather) {
      start_all_gather(transport, leg);
    } else if (leg.step->kind == StepKind::reduce_scatter) {
      start_reduce_scatter(transport, leg);
    } else {
      inner_ = packed_exchange(transport, *leg.group, messages_of(route, leg), out_, in_);
    }
  }

  void wait() override {
    if (inner_ == nullptr) return;
    inner_->wait();
    if (finish_ != nullptr) finish_();
    inner_ = nullptr;
    finish_ = nullptr;
    in_.reset();
    recorder_.reset();
  }
  bool is_done() override { return inner_ == nullptr || inner_->is_done(); }

 private:
  void start_all_reduce(Transport& transport, const Step& step) {
    const Reduction reduction(step);
    if (!in_.is_contiguous()) in_ = in_.contiguous();
    inner_ = transport.all_reduce_into(out_, in_, reduction.op);
    divide_by(reduction.divisor);
  }

  void start_all_gather(Transport& transport, const Route::Leg& leg) {
    const Step& step = *leg.step;
    const Shape& shape = leg.own->out_shape;
    auto sizes = sizes_along(step, step.from, *leg.group);
    const auto counts = counts_along(sizes, step, shape, out_.numel());
    if (!in_.is_contiguous()) in_ = in_.contiguous();
    if (is_outermost(shape, step.tensor_dim)) {
      inner_ = transport.all_gather(out_, in_, counts);
      return;
    }
    const at::Tensor gathered = new_tensor({out_.numel()}, out_.options());
    inner_ = transport.all_gather(gathered, in_, counts);
    finish_ = [this, gathered, &shape, sizes = std::move(sizes), dim = step.tensor_dim] {
      unpack_parts(out_, gathered, shape, sizes, dim);
    };
  }

  void start_reduce_scatter(Transport& transport, const Route::Leg& leg) {
    const Step& step = *leg.step;
    const Shape& shape = leg.own->in_shape;
    const auto sizes = sizes_along(step, step.to, *leg.group);
    const auto counts = counts_along(sizes, step, shape, in_.numel());
    if (!is_outermost(shape, step.tensor_dim)) {
      const at::Tensor packed = new_tensor({in_.numel()}, in_.options());
      pack_parts(packed, in_, shape, sizes, step.tensor_dim);
      in_ = packed;
    } else if (!in_.is_contiguous()) {
      in_ = in_.contiguous();
    }
    const Reduction reduction(step);
    inner_ = transport.reduce_scatter(out_, in_, counts, reduction.op);
    divide_by(reduction.divisor);
  }

  void divide_by(std::int64_t divisor) {
    if (divisor > 1) finish_ = [this, divisor] { divide(out_, divisor); };
  }

  std::optional<CommRecorder> recorder_;
  at::Tensor out_;
  at::Tensor in_;
  PendingPtr inner_;
  /// What is done with what has arrived.
  std::function<void()> finish_;
};

}  // namespace

at::Tensor new_output(const Route::Leg& leg, std::int64_t rank, const at::Tensor& in) {
  if (!leg.step->to.mesh().contains(rank)) return at::empty({0}, in.options());
  return new_tensor(leg.own->out_shape, in.options());
}

void run_local(const Route::Leg& leg, const at::Tensor& out, const at::Tensor& in) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const RankStep& own = *leg.own;
  if (own.fill_identity) fill_with_identity(out, *own.fill_identity);
  for (std::size_t i = 0; i < own.receives.size(); ++i) {
    for (std::size_t box = 0; box < own.receives[i].box_count; ++box) {
      copy_box(out, own.box(own.receives[i], box), in, own.box(own.sends[i], box));
    }
  }
}

StartedStep start_step(Route& route, Route::Leg& leg, const at::Tensor& in, bool announce) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  at::Tensor out = new_output(leg, route.rank, in);
  if (leg.step->is_local()) {
    run_local(leg, out, in);
    return {std::move(out), nullptr};
  }
  auto running = std::make_shared<RunningStep>(leg, out, in);
  running->start(route, leg, announce);
  return {std::move(out), std::move(running)};
}

}  // namespace tessera::detail
