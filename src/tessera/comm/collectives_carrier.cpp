#include "tessera/comm/collectives_carrier.h"

#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/ScalarType.h>

namespace tessera::detail {
namespace {

constexpr std::int64_t kTopBit = std::numeric_limits<std::int64_t>::min();

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
}

/// "or" as the larger, "and" as the smaller of two bytes that are 0 or 1.
ReduceOp op_on_truths(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::bor:
      return ReduceOp::max;
    case ReduceOp::product:
    case ReduceOp::band:
      return ReduceOp::min;
    default:
      return op;
  }
}

}  // namespace

bool Transport::can_reduce(const at::Tensor& data, ReduceOp op) const {
  switch (data.scalar_type()) {
    case at::kFloat:
    case at::kDouble:
      return !is_bitwise(op);
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return op != ReduceOp::avg;
    default:
      return false;
  }
}

Carrier::Carrier(const Transport& transport, const at::Tensor& x, ReduceOp op)
    : type_(x.scalar_type()), op_(op) {
  if (transport.can_reduce(x, op)) return;
  choose(x.scalar_type(), op);
  converts_ = converts_ || flips_top_bit_;
  gathers_ = !transport.can_reduce(at::empty({0}, x.options().dtype(type_)), op_);
}

void Carrier::choose(at::ScalarType type, ReduceOp op) {
  if (at::isComplexType(type)) {
    if (op == ReduceOp::product) return;  // To be gathered.
    as_pairs_ = true;
    type = c10::toRealValueType(type);
    type_ = type;
  }
  if (at::isReducedFloatingType(type) || at::isFloat8Type(type)) {
    type_ = at::kFloat;
    converts_ = true;
    return;
  }
  switch (type) {
    case at::kBool:
      type_ = at::kByte;
      op_ = op_on_truths(op);
      converts_ = true;
      return;
    case at::kShort:
    case at::kUInt16:
      type_ = at::kInt;
      converts_ = true;
      return;
    case at::kUInt32:
      type_ = at::kLong;
      converts_ = true;
      return;
    case at::kUInt64:
      type_ = at::kLong;
      as_signed_ = true;
      flips_top_bit_ = op == ReduceOp::min || op == ReduceOp::max;
      return;
    default:
      return;
  }
}

at::Tensor Carrier::view_of(const at::Tensor& flat) const {
  if (as_pairs_) return at::view_as_real(flat).view({2 * flat.numel()});
  if (as_signed_) return flat.view(at::kLong);
  return flat;
}

at::Tensor Carrier::carried(const at::Tensor& flat) const {
  const at::Tensor view = view_of(flat);
  if (flips_top_bit_) return view.bitwise_xor(kTopBit);
  return converts_ ? view.to(type_) : view;
}

at::Tensor Carrier::room_for(const at::Tensor& flat) const {
  if (!converts_) return view_of(flat);
  return at::empty({flat.numel() * width()}, flat.options().dtype(type_));
}

void Carrier::deliver(const at::Tensor& carried, const at::Tensor& flat) const {
  if (!converts_) return;
  view_of(flat).copy_(flips_top_bit_ ? carried.bitwise_xor(kTopBit) : carried);
}

}  // namespace tessera::detail
