#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tensor/local_map_cases.h"
#include "tessera/comm/traffic.h"
#include "tessera/comm/world.h"

namespace tessera::test {

/// Values that differ from rank to rank.
inline at::Tensor own_values(const World& world, const std::vector<std::int64_t>& sizes) {
  return sample_values(sizes, world.rank());
}

/// How often the calling rank communicates in `fn`.
template <typename Function>
std::int64_t collectives_in(const Function& fn) {
  CommDebugMode traffic;
  {
    const auto scope = traffic.record();
    fn();
  }
  return traffic.total_count();
}

}  // namespace tessera::test
