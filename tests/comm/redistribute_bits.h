#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/layout/layout.h"

namespace tessera::test {

// Redistributions that only move, and tensors that no arithmetic would leave as they are.

/// Returns whether nothing is reduced between two layouts, and nothing filled in, so that all values
/// must arrive bit for bit: there is no Partial, or only along mesh dims that stay as they are. Along
/// these nobody talks, and every contribution is moved by itself.
[[nodiscard]] bool only_moves(const Layout& from, const Layout& to);

/// Returns which contribution the rank at a coordinate has a part of: a number that follows from its
/// coordinates along Partial mesh dims, 0 where there are none.
[[nodiscard]] std::int64_t contribution_number(const Layout& layout, const Coordinate& coordinate);

/// Returns whether there are integers of the dtype's width, as `odd_bits` needs.
[[nodiscard]] bool has_carrier(at::ScalarType dtype);
/// Returns the integer dtype of the same width. No comparison of integers can mistake one for another.
[[nodiscard]] at::ScalarType carrier_of(at::ScalarType dtype);

/// Returns a tensor of a shape as integers of the dtype's width: both zeros, several NaNs (all bits
/// set, and all but the sign and the last one) and anything else, for complex numbers in both halves;
/// of bools, true and false. Contributions with neighbouring numbers differ in every element.
[[nodiscard]] at::Tensor odd_bits(const Shape& shape, at::ScalarType dtype,
                                  std::int64_t contribution = 0);

}  // namespace tessera::test
