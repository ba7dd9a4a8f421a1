#include "comm/redistribute_bits.h"

#include <functional>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>

namespace tessera::test {

bool only_moves(const Layout& from, const Layout& to) {
  if (!from.has_partial() && !to.has_partial()) return true;
  if (!from.mesh().same_ranks(to.mesh())) return false;
  for (std::size_t i = 0; i < from.placements().size(); ++i) {
    const bool involves_partial =
        is_partial(from.placements()[i]) || is_partial(to.placements()[i]);
    if (involves_partial && !(from.placements()[i] == to.placements()[i])) return false;
  }
  return true;
}

std::int64_t contribution_number(const Layout& layout, const Coordinate& coordinate) {
  std::int64_t number = 0;
  for (std::size_t i = 0; i < coordinate.size(); ++i) {
    if (!is_partial(layout.placements()[i])) continue;
    number = number * layout.mesh().sizes()[i] + coordinate[i];
  }
  return number;
}

bool has_carrier(at::ScalarType dtype) {
  return c10::elementSize(dtype) <= c10::elementSize(at::kLong);
}

at::ScalarType carrier_of(at::ScalarType dtype) {
  if (dtype == at::kBool) return at::kByte;
  constexpr at::ScalarType kByWidth[] = {at::kByte, at::kShort, at::kInt, at::kLong};
  const auto width = c10::elementSize(dtype);
  return kByWidth[width == 8 ? 3 : width / 2];
}

at::Tensor odd_bits(const Shape& shape, at::ScalarType dtype, std::int64_t contribution) {
  const auto carrier = carrier_of(dtype);
  const std::int64_t numel =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  const bool has_halves = dtype == at::kComplexFloat;
  const at::ScalarType half = has_halves ? at::kInt : carrier;
  const auto bits = static_cast<std::int64_t>(8 * c10::elementSize(half));
  const std::int64_t sign = std::numeric_limits<std::int64_t>::min() >> (64 - bits);
  const auto index = at::arange(has_halves ? 2 * numel : numel, at::kLong).add(contribution);
  if (dtype == at::kBool) return index.mul(7).remainder(2).to(carrier).view(shape);
  const auto kind = index.remainder(5);
  at::Tensor values = index.mul(0x1E3779B97F4A7C15).add(5);
  values = values.masked_fill(kind.eq(0), sign).masked_fill(kind.eq(1), -1);
  values = values.masked_fill(kind.eq(2), -(sign + 2)).to(half);
  if (half == carrier) return values.view(shape);
  return values.view({numel, 2}).view(carrier).view(shape);
}

}  // namespace tessera::test
