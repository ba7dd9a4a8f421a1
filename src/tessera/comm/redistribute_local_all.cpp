#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include "tessera/base/check.h"
#include "tessera/comm/batch_route.h"
#include "tessera/comm/large_memory.h"
#include "tessera/comm/participants.h"
#include "tessera/comm/pending_tensor.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/refusal.h"
#include "tessera/comm/route.h"
#include "tessera/comm/world_state.h"

namespace tessera {
namespace {

using detail::BatchRoute;
using detail::ExchangePart;
using detail::PendingPtr;

/// Throws `InvalidArgument` about this rank's arguments, and lets the others know.
[[noreturn]] void refuse_list(detail::WorldState& world, std::span<const LayoutChange> changes,
                              const std::string& what) {
  std::optional<Group> participants;
  try {
    participants = detail::participants_of_all(world, changes);
  } catch (const InvalidArgument&) {
    throw InvalidArgument(what);
  }
  detail::refuse(world, participants, what);
}

/// The call of one rank, checked as far as the rank can by itself.
std::shared_ptr<const BatchRoute> checked_route(detail::WorldState& world,
                                                std::span<const at::Tensor> locals,
                                                std::span<const LayoutChange> changes,
                                                std::int64_t staging_budget) {
  const auto refuse_if = [&](std::size_t index, const detail::Complaint& complaint) {
    if (complaint.given.empty()) return;
    refuse_list(world, changes,
                concat("redistribute_local_all: tensor ", index, ": ", complaint.given, " given; ",
                       complaint.advice));
  };
  c10::SmallVector<at::ScalarType, 16> dtypes;
  for (std::size_t i = 0; i < locals.size(); ++i) {
    refuse_if(i, detail::complain(locals[i]));
    dtypes.push_back(locals[i].scalar_type());
  }
  std::shared_ptr<const BatchRoute> route;
  try {
    route = world.routes().batches().find(world, {changes, dtypes, staging_budget});
  } catch (const InvalidArgument& error) {
    refuse_list(world, changes, error.what());
  }
  for (std::size_t i = 0; i < locals.size(); ++i) {
    refuse_if(i, detail::complain_about_shape(locals[i], route->in_shapes[i], changes[i].from));
  }
  return route;
}

/// Makes sure, where it takes an exchange of its own, that all who take part do the same. Returns
/// whether that is left to the trips.
bool agree_before(const BatchRoute& route) {
  if (!route.participants || route.agrees_in_trip) return true;
  detail::Transport* transport = nullptr;
  try {
    transport = &detail::connect(*route.participants);
  } catch (const InvalidArgument&) {
    // All of them find that there is no such group.
    return true;
  }
  (void)transport->check_records(route.fingerprint, {});
  return false;
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
                      std::span<const LayoutChange> changes, const World& world, bool check,
                      std::vector<at::Tensor>& results) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::vector<ExchangePart> parts;
  parts.reserve(trip.items.size());
  for (std::size_t i = 0; i < trip.items.size(); ++i) {
    at::Tensor& result = results[trip.items[i]];
    at::Tensor in = detail::plain_values(result);
    const LayoutChange& change = changes[trip.items[i]];
    if (change.to.mesh().contains(world.rank())) {
      result = detail::new_tensor(trip.parts[i]->out_shape, in.options());
    } else if (change.from.mesh().contains(world.rank())) {
      result = at::empty({0}, in.options());
    }
    parts.push_back({result, std::move(in), trip.parts[i]});
  }
  auto running = std::make_shared<RunningTrip>(trip);
  running->start(route, trip, check, std::move(parts), world.rank());
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
  TESSERA_CHECK(locals.size() == changes.size(), "redistribute_local_all: ", locals.size(),
                " tensor(s) given for ", changes.size(),
                " change(s) of layout; pass one for each tensor");
  detail::WorldState& state = world.state();
  const detail::SoleUse use(state, "redistribute_local_all");
  const auto route = checked_route(state, locals, changes, options.staging_budget);
  const detail::CauseScope cause(route->cause);
  const bool check = state.options().check && agree_before(*route);
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
    const PendingPtr pending = start_trip(*route, trip, changes, world, check, results);
    if (!options.async_op || (is_limited && &trip != &route->trips.back())) {
      pending->wait();
      continue;
    }
    for (const auto i : trip.items) {
      const bool moves = changes[i].from.mesh().contains(world.rank()) ||
                         changes[i].to.mesh().contains(world.rank());
      if (moves)
        results[i] = detail::make_pending_tensor(results[i], pending, state.weak_from_this());
    }
  }
  return results;
}

}  // namespace tessera
