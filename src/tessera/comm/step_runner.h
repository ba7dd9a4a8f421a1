#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/comm/route.h"
#include "tessera/comm/transport.h"

namespace tessera::detail {

/// A step that was begun: `out` is complete when `pending` was waited for, which is null when it is
/// complete already.
struct StartedStep {
  at::Tensor out;
  PendingPtr pending;
};

/// Begins one leg of a route on whatever engine its group has. The operation keeps `in` alive.
///
/// `announce` says whether the leg's ranks compare what they are about to do; see `Route::Agreement`.
[[nodiscard]] StartedStep start_step(Route& route, Route::Leg& leg, const at::Tensor& in,
                                     bool announce);

/// Returns memory for the result of a leg.
[[nodiscard]] at::Tensor new_output(const Route::Leg& leg, std::int64_t rank, const at::Tensor& in);

/// Carries out a leg without traffic.
void run_local(const Route::Leg& leg, const at::Tensor& out, const at::Tensor& in);

}  // namespace tessera::detail
