#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/random_layout.h"
#include "tessera/layout/box_map.h"

/// Random maps of boxes for tests. The same seed gives the same map on every machine.
namespace tessera::test {

/// Returns boxes that tile `shape`: up to `cuts` times one of them is cut in two, at a place that may
/// leave one half empty. Each goes to any of `ranks`; they are listed in any order.
inline std::vector<OwnedBox> random_tiling(Random& random, const Shape& shape, std::int64_t cuts,
                                           const std::vector<std::int64_t>& ranks) {
  std::vector<OwnedBox> boxes{{whole_box(shape), random.pick(ranks)}};
  for (std::int64_t i = 0; i < cuts && !shape.empty(); ++i) {
    const auto at = static_cast<std::size_t>(random.between(0, std::ssize(boxes) - 1));
    const auto dim = static_cast<std::size_t>(random.between(0, std::ssize(shape) - 1));
    OwnedBox second = boxes[at];
    Extent& left = boxes[at].box.dims[dim];
    Extent& right = second.box.dims[dim];
    const std::int64_t size = random.between(0, left.size);
    right = {left.begin + size, left.size - size};
    left.size = size;
    second.rank = random.pick(ranks);
    boxes.push_back(std::move(second));
  }
  random.shuffle(boxes);
  return boxes;
}

/// Calls visit(index, position) for the elements of a box, in the order in which a contiguous tensor
/// of its shape keeps them: their row-major index in the whole, and in the box.
template <typename Visit>
void for_each_element(const Shape& shape, const Box& box, const Visit& visit) {
  const std::int64_t numel = box.numel();
  for (std::int64_t position = 0; position < numel; ++position) {
    std::int64_t rest = position;
    std::int64_t index = 0;
    std::int64_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      index += (box.dims[d].begin + rest % box.dims[d].size) * stride;
      rest /= box.dims[d].size;
      stride *= shape[d];
    }
    visit(index, position);
  }
}

}  // namespace tessera::test
