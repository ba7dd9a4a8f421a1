#include "tessera/comm/redistribute_local.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/base/check.h"
#include "tessera/comm/packed_exchange.h"
#include "tessera/comm/pending_tensor.h"
#include "tessera/comm/recorder.h"
#include "tessera/comm/route.h"
#include "tessera/comm/step_runner.h"
#include "tessera/comm/world_state.h"

namespace tessera {
namespace {

using detail::PendingPtr;
using detail::Route;

void check_local(const at::Tensor& local, const Route& route) {
  if (!route.in_shape) return;
  TESSERA_CHECK(local.sizes() == at::IntArrayRef(*route.in_shape),
                "redistribute_local: a local tensor of shape [", joined(local.sizes(), ","),
                "] given on rank ", route.rank, "; in ", route.plan.from(), " it is [",
                joined(*route.in_shape, ","), "]");
}

/// The values of a tensor as they lie in memory.
at::Tensor plain(const at::Tensor& local) {
  detail::settle(local);
  if (local.is_conj() || local.is_neg()) return local.resolve_conj().resolve_neg();
  return local;
}

/// Returns the result of a route whose last operation is under way: the legs behind it, all without
/// traffic, are carried out when it was waited for.
at::Tensor pending_result(const std::shared_ptr<Route>& route, at::Tensor last_out,
                          PendingPtr last) {
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
      result, std::make_shared<detail::AfterPending>(std::move(last), std::move(finish)));
}

at::Tensor follow(const std::shared_ptr<Route>& route, const at::Tensor& local, bool check,
                  bool async_op) {
  const detail::CauseScope cause(route->cause);
  at::Tensor current = plain(local);
  bool announce = check;
  for (std::size_t i = 0; i < route->legs.size(); ++i) {
    auto started = detail::start_step(*route, route->legs[i], current, announce);
    current = std::move(started.out);
    if (started.pending == nullptr) continue;
    announce = false;
    if (async_op && i + 1 == route->legs_to_wait_for) {
      return pending_result(route, std::move(current), std::move(started.pending));
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
  TESSERA_CHECK(
      local.defined(), "redistribute_local: an undefined tensor given on rank ", world.rank(),
      "; pass the rank's part, or an empty tensor of the right dtype outside of the mesh");
  detail::WorldState& state = world.state();
  const auto& route =
      state.routes().find(state, {from, to, local.scalar_type(), options.staging_budget});
  check_local(local, *route);
  if (route->legs.empty()) return local;
  // The cache may forget the route while it is followed: hooks of the tensors' may move others.
  return follow(std::shared_ptr<Route>(route), local, state.options().check, options.async_op);
}

}  // namespace tessera
