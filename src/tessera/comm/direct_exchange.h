#pragma once

#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include "tessera/comm/transport.h"
#include "tessera/plan/step.h"

namespace tessera::detail {

/// One rank's part in the exchange of one tensor: its boxes of `in` go to others, what it receives
/// goes into boxes of `out`. Empty tensors stand for those of ranks outside of a mesh.
struct ExchangePart {
  at::Tensor out;
  at::Tensor in;
  std::shared_ptr<const RankStep> own;
};

/// What transports can do besides whose ranks reach each other's memory.
class DirectExchange {
 public:
  virtual ~DirectExchange() = default;

  /// Does what `Transport::exchange` does for several tensors at once, the same ones in the same order
  /// on all members, which are the ranks of all of their meshes.
  virtual PendingPtr exchange_all(std::span<const ExchangePart> parts) = 0;
};

}  // namespace tessera::detail
