#pragma once

#include "tessera/layout/layout.h"

namespace tessera {

/// The layouts with which a tensor gets another shape without its elements changing order.
struct ViewChoice {
  /// What the tensor must be brought into first; its own layout, unchanged, where that serves.
  Layout input;
  /// What it then has: reshaping the local part to this layout's local shape is all there is to do.
  Layout output;
};

/// Returns how a tensor of layout `from` is reshaped to `shape`, such that as many of its cuts as
/// possible stay as they are:
///
///     [8,6][S(0)]   -> [48]      stays, gives [S(0)]
///     [8,6][S(1)]   -> [48]      stays, gives [SS(0,8)]: chunks of every row
///     [48][S(0)]    -> [8,6]     stays, gives [S(0)]
///     [48][SS(0,8)] -> [8,6]     stays, gives [S(1)]
///     [8,6][S(0)]   -> [6,8]     replicated first on a mesh dim of 4, which does not divide 6
///
/// A cut that is uneven, or falls across the new dims, is given up: the input becomes Replicate
/// along that mesh dim. Partial and Replicate stay. Pure: all ranks choose alike.
///
/// Throws `InvalidArgument` when the shapes have different numbers of elements.
[[nodiscard]] ViewChoice choose_view(const Layout& from, const Shape& shape);

}  // namespace tessera
