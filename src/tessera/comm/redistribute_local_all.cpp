#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include "tessera/base/check.h"
#include "tessera/comm/batch_route.h"
#include "tessera/comm/large_memory.h"
#include "tessera/comm/pending_tensor.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/route.h"
#include "tessera/comm/world_state.h"

namespace tessera {
namespace {

using detail::BatchRoute;
using detail::ExchangePart;
using detail::PendingPtr;

void check_locals(std::span<const at::Tensor> locals, std::span<const LayoutChange> changes,
                  const World& world) {
  TESSERA_CHECK(locals.size() == changes.size(), "redistribute_local_all: ", locals.size(),
                " tensor(s) given for ", changes.size(),
                " change(s) of layout; pass one for each tensor");
  for (std::size_t i = 0; i < locals.size(); ++i) {
    TESSERA_CHECK(
        locals[i].defined(), "redistribute_local_all: tensor ", i, " is undefined on rank ",
        world.rank(),
        "; pass the rank's part, or an empty tensor of the right dtype outside of the mesh");
  }
}

void check_shapes(std::span<const at::Tensor> locals, std::span<const LayoutChange> changes,
                  const BatchRoute& route, const World& world) {
  for (std::size_t i = 0; i < locals.size(); ++i) {
    const auto& shape = route.in_shapes[i];
    TESSERA_CHECK(!shape || locals[i].sizes() == at::IntArrayRef(*shape),
                  "redistribute_local_all: tensor ", i, ", a local one of shape [",
                  joined(locals[i].sizes(), ","), "] given on rank ", world.rank(), "; in ",
                  changes[i].from, " it is [", joined(*shape, ","), "]");
  }
}

/// The values of a tensor as they lie in memory.
at::Tensor plain(const at::Tensor& local) {
  detail::settle(local);
  if (local.is_conj() || local.is_neg()) return local.resolve_conj().resolve_neg();
  return local;
}

/// A batch under way.
class RunningTrip : public detail::Pending {
 public:
  explicit RunningTrip(const BatchRoute::Trip& trip)
      : recorder_(std::in_place, "all_to_all_single", trip.group, trip.traffic.sent_bytes,
                  trip.traffic.received_bytes) {}

  void start(const BatchRoute& route, const BatchRoute::Trip& trip, bool check,
             std::vector<ExchangePart> parts, std::int64_t rank) {
    detail::Transport& transport = detail::connect(trip.group);
    if (check) transport.check(route.fingerprint);
    if (auto* direct = dynamic_cast<detail::DirectExchange*>(&transport)) {
      inner_ = direct->exchange_all(parts);
    } else {
      inner_ = packed_batch_exchange(transport, trip.packing, std::move(parts), rank);
    }
  }

  void wait() override {
    if (inner_ == nullptr) return;
    inner_->wait();
    inner_ = nullptr;
    recorder_.reset();
  }
  bool is_done() override { return inner_ == nullptr || inner_->is_done(); }

 private:
  std::optional<detail::CommRecorder> recorder_;
  PendingPtr inner_;
};

/// Begins a batch, and puts its results, which may be on their way, into `results`.
PendingPtr start_trip(const BatchRoute& route, const BatchRoute::Trip& trip,
                      std::span<const LayoutChange> changes, const World& world,
                      std::vector<at::Tensor>& results) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<ExchangePart> parts;
  parts.reserve(trip.items.size());
  for (std::size_t i = 0; i < trip.items.size(); ++i) {
    at::Tensor& result = results[trip.items[i]];
    at::Tensor in = plain(result);
    const LayoutChange& change = changes[trip.items[i]];
    if (change.to.mesh().contains(world.rank())) {
      result = detail::new_tensor(trip.parts[i]->out_shape, in.options());
    } else if (change.from.mesh().contains(world.rank())) {
      result = at::empty({0}, in.options());
    }
    parts.push_back({result, std::move(in), trip.parts[i]});
  }
  auto running = std::make_shared<RunningTrip>(trip);
  running->start(route, trip, world.options().check, std::move(parts), world.rank());
  return running;
}

}  // namespace

std::vector<at::Tensor> redistribute_local_all(std::span<const at::Tensor> locals,
                                               std::span<const LayoutChange> changes,
                                               const RedistributeLocalOptions& options) {
  return redistribute_local_all(locals, changes, World::current(), options);
}

std::vector<at::Tensor> redistribute_local_all(std::span<const at::Tensor> locals,
                                               std::span<const LayoutChange> changes,
                                               const World& world,
                                               const RedistributeLocalOptions& options) {
  check_locals(locals, changes, world);
  detail::WorldState& state = world.state();
  c10::SmallVector<at::ScalarType, 16> dtypes;
  for (const auto& local : locals) dtypes.push_back(local.scalar_type());
  const auto route =
      state.routes().batches().find(state, {changes, dtypes, options.staging_budget});
  check_shapes(locals, changes, *route, world);
  const detail::CauseScope cause(route->cause);
  std::vector<at::Tensor> results(locals.begin(), locals.end());
  // Buffers of what is under way count: only without a budget may one wait for the next.
  const bool is_limited = options.staging_budget != std::numeric_limits<std::int64_t>::max();
  RedistributeLocalOptions alone = options;
  alone.async_op =
      options.async_op && !(is_limited && route->trips.size() + route->alone.size() > 1);
  for (const auto i : route->alone) {
    results[i] = redistribute_local(locals[i], changes[i].from, changes[i].to, world, alone);
  }
  for (const auto& trip : route->trips) {
    const PendingPtr pending = start_trip(*route, trip, changes, world, results);
    if (!options.async_op || (is_limited && &trip != &route->trips.back())) {
      pending->wait();
      continue;
    }
    for (const auto i : trip.items) {
      const bool moves = changes[i].from.mesh().contains(world.rank()) ||
                         changes[i].to.mesh().contains(world.rank());
      if (moves) results[i] = detail::make_pending_tensor(results[i], pending);
    }
  }
  return results;
}

}  // namespace tessera
