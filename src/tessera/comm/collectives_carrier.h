#pragma once

#include <ATen/core/Tensor.h>

#include "tessera/comm/transport.h"

namespace tessera::detail {

/// In which form the values of a tensor travel through a reduction: their own where the engine can
/// reduce that, otherwise as the table in `collectives.h` says.
class Carrier {
 public:
  /// For values of the dtype of `x`, reduced by `op` through `transport`.
  Carrier(const Transport& transport, const at::Tensor& x, ReduceOp op);

  /// By which op the carried values are reduced.
  [[nodiscard]] ReduceOp op() const { return op_; }
  /// True when the engine cannot reduce these values in any form: they have to be gathered instead.
  [[nodiscard]] bool gathers() const { return gathers_; }
  /// How many carried elements there are for one element.
  [[nodiscard]] std::int64_t width() const { return as_pairs_ ? 2 : 1; }

  /// Returns the values of a contiguous tensor of one dim in the form in which they travel. Shares
  /// its memory where the form is but another view of it.
  [[nodiscard]] at::Tensor carried(const at::Tensor& flat) const;
  /// Returns memory for carried values that are to become `flat`, shared with it where possible.
  [[nodiscard]] at::Tensor room_for(const at::Tensor& flat) const;
  /// Turns carried values that arrived in `room_for(flat)` into those of `flat`.
  void deliver(const at::Tensor& carried, const at::Tensor& flat) const;

 private:
  void choose(at::ScalarType type, ReduceOp op);
  [[nodiscard]] at::Tensor view_of(const at::Tensor& flat) const;

  /// Complex numbers as pairs of real ones.
  bool as_pairs_ = false;
  /// Then the same bits as another dtype.
  bool as_signed_ = false;
  bool flips_top_bit_ = false;
  /// Then converted to another dtype; the same for no conversion.
  at::ScalarType type_;
  bool converts_ = false;
  ReduceOp op_;
  bool gathers_ = false;
};

}  // namespace tessera::detail
