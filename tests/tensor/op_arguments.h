#pragma once

#include <cstdint>
#include <vector>

#include "tensor/op_case.h"

namespace tessera::test {

// How the arguments of random calls are made. Sizes are small and awkward: 0, 1, primes, fewer than
// ranks, no dims at all.

/// Values that do not repeat, around 0; one tensor in eight is float, the others double.
[[nodiscard]] at::Tensor values(Random& random, const Shape& shape);
/// In (0.1, 2.1), and in (0.05, 0.95).
[[nodiscard]] at::Tensor positive_values(Random& random, const Shape& shape);
[[nodiscard]] at::Tensor unit_values(Random& random, const Shape& shape);
/// Integers in [low, high]; int64.
[[nodiscard]] at::Tensor integers(Random& random, const Shape& shape, std::int64_t low,
                                  std::int64_t high);
[[nodiscard]] at::Tensor booleans(Random& random, const Shape& shape);
/// Double, whatever the chance: for ops that take several tensors of one dtype.
[[nodiscard]] at::Tensor doubles(Random& random, const Shape& shape);

/// A shape of `least` to `most` dims, by chance with a size of 0.
[[nodiscard]] Shape any_shape(Random& random, std::int64_t least = 0, std::int64_t most = 4);
/// The same without empty dims.
[[nodiscard]] Shape full_shape(Random& random, std::int64_t least = 0, std::int64_t most = 4);
/// One size: rarely 0, often uneven.
[[nodiscard]] std::int64_t any_size(Random& random);
[[nodiscard]] std::int64_t full_size(Random& random);
/// A dim of a tensor of `ndim`, by chance counted from the end.
[[nodiscard]] std::int64_t any_dim(Random& random, std::int64_t ndim);
/// The same shape, of which dims may be 1 or missing.
[[nodiscard]] Shape broadcastable(Random& random, const Shape& shape);

// Makers for tables.

[[nodiscard]] OpArguments one(Random& random);
[[nodiscard]] OpArguments one_positive(Random& random);
[[nodiscard]] OpArguments one_unit(Random& random);
[[nodiscard]] OpArguments one_integer(Random& random);
[[nodiscard]] OpArguments one_bool(Random& random);
/// Not empty.
[[nodiscard]] OpArguments one_full(Random& random);
/// Of the same shape.
[[nodiscard]] OpArguments two(Random& random);
[[nodiscard]] OpArguments three(Random& random);
[[nodiscard]] OpArguments two_integers(Random& random);
/// Broadcast against each other.
[[nodiscard]] OpArguments two_broadcast(Random& random);
[[nodiscard]] OpArguments two_positive(Random& random);
[[nodiscard]] OpArguments three_broadcast(Random& random);
[[nodiscard]] OpArguments two_integers_broadcast(Random& random);
/// A tensor of bools, then two that it chooses from.
[[nodiscard]] OpArguments mask_and_two(Random& random);
/// A tensor and a mask that is broadcast to it.
[[nodiscard]] OpArguments one_and_mask(Random& random);
/// In-place: the second is broadcast to the first.
[[nodiscard]] OpArguments one_and_smaller(Random& random);
[[nodiscard]] OpArguments one_and_two_smaller(Random& random);

/// At least one dim; numbers: dim.
[[nodiscard]] OpArguments one_dim(Random& random);
[[nodiscard]] OpArguments one_full_dim(Random& random);
/// numbers: keepdim, then dims.
[[nodiscard]] OpArguments some_dims(Random& random);
[[nodiscard]] OpArguments some_full_dims(Random& random);

}  // namespace tessera::test
