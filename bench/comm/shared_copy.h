#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/comm/world.h"

namespace tessera::bench {

/// A memcpy that all ranks of a host do together, with as many threads as there are cores: ranks
/// copy a share each, and those beyond the cores nothing, as they would only be in the way. Where
/// there are more cores than ranks, ranks start threads.
class SharedCopy {
 public:
  /// Of so many floats in all.
  SharedCopy(const World& world, std::int64_t elements);

  /// Into memory that was used before, or that is new every time.
  void into_used() const { copy(used_); }
  void into_new() const;

 private:
  void copy(const at::Tensor& out) const;

  /// How many of the threads are this rank's.
  std::int64_t threads_;
  at::Tensor in_;
  at::Tensor used_;
};

}  // namespace tessera::bench
