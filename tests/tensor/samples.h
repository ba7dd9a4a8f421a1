#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "support/random_layout.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/world.h"

namespace tessera::test {

/// `first`, `first + 1`, ... in rows.
inline at::Tensor counted(const std::vector<std::int64_t>& sizes,
                          at::ScalarType dtype = at::kDouble, std::int64_t first = 0) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return torch::arange(first, first + count).to(dtype).reshape(sizes);
}

/// Doubles between -1 and 1 of no apparent order.
inline at::Tensor waves(const std::vector<std::int64_t>& sizes) {
  return (counted(sizes) * 1.7).sin();
}

/// One mesh of all ranks, and [dp=2, tp=2] where there are four.
inline std::vector<DeviceMesh> meshes_of(const World& world) {
  std::vector<DeviceMesh> meshes = {init_device_mesh("cpu", {world.size()})};
  if (world.size() == 4) meshes.push_back(init_device_mesh("cpu", {2, 2}, {"dp", "tp"}));
  return meshes;
}

/// A mesh of one or two dims; with four ranks 2x2 in half of the cases.
inline DeviceMesh draw_mesh(Random& random, std::int64_t ranks) {
  std::vector<std::vector<std::int64_t>> sizes = {{ranks}, {1, ranks}, {ranks, 1}};
  if (ranks == 4) sizes.insert(sizes.end(), 3, {2, 2});
  return init_device_mesh("cpu", random.pick(sizes));
}

}  // namespace tessera::test
