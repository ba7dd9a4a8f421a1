#include "tessera/comm/redistribute_local.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/base/check.h"
#include "tessera/comm/packed_exchange.h"
#include "tessera/comm/participants.h"
#include "tessera/comm/pending_tensor.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/refusal.h"
#include "tessera/comm/route.h"
#include "tessera/comm/step_runner.h"
#include "tessera/comm/world_state.h"

namespace tessera {
namespace {

using detail::PendingPtr;
using detail::Route;
using detail::WorldState;

/// Finds the route. Options that it cannot be found with may be this rank's alone.
const std::shared_ptr<Route>& find_route(WorldState& world, const detail::RouteQuestion& question) {
  try {
    return world.routes().find(world, question);
  } catch (const InvalidArgument& error) {
    detail::refuse(world, detail::participants_of(world, question.from, question.to), error.what());
  }
}

/// Returns the result of a route whose last operation is under way: the legs behind it, all without
/// traffic, are carried out when it was waited for.
at::Tensor pending_result(WorldState& world, const std::shared_ptr<Route>& route,
                          at::Tensor last_out, PendingPtr last) {
  std::vector<at::Tensor> outputs{std::move(last_out)};
  for (std::size_t i = route->legs_to_wait_for; i < route->legs.size(); ++i) {
    outputs.push_back(detail::new_output(route->legs[i], route->rank, outputs.back()));
  }
  const at::Tensor result = outputs.back();
  auto finish = [route, outputs = std::move(outputs)] {
    for (std::size_t i = 1; i < outputs.size(); ++i) {
      const auto& leg = route->legs[route->legs_to_wait_for + i - 1];
      detail::run_local(leg, outputs[i], outputs[i - 1]);
    }
  };
  return detail::make_pending_tensor(
      result, std::make_shared<detail::AfterPending>(std::move(last), std::move(finish)),
      world.weak_from_this());
}

/// Makes sure, where it takes an exchange of its own, that all who take part do the same.
void agree_before(Route& route) {
  detail::Transport* transport = nullptr;
  try {
    transport = &detail::connect(*route.participants);
  } catch (const InvalidArgument&) {
    // All of them find that there is no such group.
    route.agreement = Route::Agreement::in_every_leg;
    return;
  }
  (void)transport->check_records(route.fingerprint, {});
}

at::Tensor follow(WorldState& world, const std::shared_ptr<Route>& route, const at::Tensor& local,
                  bool async_op) {
  const detail::CauseScope cause(route->cause);
  const bool check = world.options().check && route->participants;
  if (check && route->agreement == Route::Agreement::before) agree_before(*route);
  if (route->legs.empty()) return local;
  at::Tensor current = detail::plain_values(local);
  bool announce = check && route->agreement != Route::Agreement::before;
  for (std::size_t i = 0; i < route->legs.size(); ++i) {
    auto started = detail::start_step(*route, route->legs[i], current, announce);
    current = std::move(started.out);
    if (started.pending == nullptr) continue;
    announce = announce && route->agreement == Route::Agreement::in_every_leg;
    if (async_op && i + 1 == route->legs_to_wait_for) {
      return pending_result(world, route, std::move(current), std::move(started.pending));
    }
    started.pending->wait();
  }
  return current;
}

}  // namespace

at::Tensor redistribute_local(const at::Tensor& local, const Layout& from, const Layout& to,
                              const RedistributeLocalOptions& options) {
  return redistribute_local(local, from, to, World::current(), options);
}

at::Tensor redistribute_local(const at::Tensor& local, const Layout& from, const Layout& to,
                              const World& world, const RedistributeLocalOptions& options) {
  detail::WorldState& state = world.state();
  const detail::SoleUse use(state, "redistribute_local");
  const auto refuse_if = [&](const detail::Complaint& complaint) {
    if (complaint.given.empty()) return;
    detail::refuse(state, detail::participants_of(state, from, to),
                   concat("redistribute_local: ", complaint.given, " given; ", complaint.advice));
  };
  refuse_if(detail::complain(local));
  // The cache may forget the route while it is followed: hooks of the tensors' may move others.
  const std::shared_ptr<Route> route =
      find_route(state, {from, to, local.scalar_type(), options.staging_budget});
  refuse_if(detail::complain_about_shape(local, route->in_shape, from));
  if (route->legs.empty() && !route->participants) return local;
  return follow(state, route, local, options.async_op);
}

}  // namespace tessera
