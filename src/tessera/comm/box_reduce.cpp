#include "tessera/comm/box_reduce.h"

#include <limits>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/core/ScalarType.h>

#include "tessera/base/check.h"
#include "tessera/comm/box_copy.h"
#include "tessera/comm/box_loops.h"

namespace tessera::detail {
namespace {

template <typename T>
void add_row(T* out, const T* in, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) out[i] += in[i];
}

/// Adds a box to another whose rows, like its own, are contiguous.
template <typename T>
void add_rows(const BoxLoops& box, std::int64_t size) {
  for_each_round(box.out, box.in, box.loops.begin(), box.loops.end(),
                 [&](std::byte* out, const std::byte* in) {
                   add_row(reinterpret_cast<T*>(out), reinterpret_cast<const T*>(in), size);
                 });
}

/// Adds what is most often added, without the cost of an operation of libtorch per box, which for
/// a small one is most of it. Returns false for the rest.
bool add_host_box(BoxLoops box, at::ScalarType type) {
  const auto element = static_cast<std::int64_t>(c10::elementSize(type));
  auto& loops = box.loops;
  std::int64_t size = 1;
  if (!loops.empty()) {
    if (loops.back().out_stride != element || loops.back().in_stride != element) return false;
    size = loops.back().size;
    loops.pop_back();
  }
  switch (type) {
    case at::kFloat:
      add_rows<float>(box, size);
      return true;
    case at::kDouble:
      add_rows<double>(box, size);
      return true;
    default:
      return false;
  }
}

void reduce_view(at::Tensor out, const at::Tensor& in, ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      out.add_(in);
      return;
    case ReduceOp::product:
      out.mul_(in);
      return;
    case ReduceOp::min:
      at::minimum_out(out, out, in);
      return;
    case ReduceOp::max:
      at::maximum_out(out, out, in);
      return;
    case ReduceOp::band:
      out.bitwise_and_(in);
      return;
    case ReduceOp::bor:
      out.bitwise_or_(in);
      return;
    case ReduceOp::bxor:
      out.bitwise_xor_(in);
      return;
  }
}

at::Scalar lowest(at::ScalarType type) {
  if (at::isFloatingType(type)) return -std::numeric_limits<double>::infinity();
  if (type == at::kBool) return false;
  switch (type) {
    case at::kChar:
      return std::int64_t{std::numeric_limits<std::int8_t>::min()};
    case at::kShort:
      return std::int64_t{std::numeric_limits<std::int16_t>::min()};
    case at::kInt:
      return std::int64_t{std::numeric_limits<std::int32_t>::min()};
    case at::kLong:
      return std::numeric_limits<std::int64_t>::min();
    default:  // Unsigned.
      return std::int64_t{0};
  }
}

at::Scalar highest(at::ScalarType type) {
  if (at::isFloatingType(type)) return std::numeric_limits<double>::infinity();
  if (type == at::kBool) return true;
  switch (type) {
    case at::kByte:
      return std::int64_t{std::numeric_limits<std::uint8_t>::max()};
    case at::kChar:
      return std::int64_t{std::numeric_limits<std::int8_t>::max()};
    case at::kShort:
      return std::int64_t{std::numeric_limits<std::int16_t>::max()};
    case at::kInt:
      return std::int64_t{std::numeric_limits<std::int32_t>::max()};
    default:
      return std::numeric_limits<std::int64_t>::max();
  }
}

at::Scalar identity_of(at::ScalarType type, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return type == at::kBool ? at::Scalar(false) : at::Scalar(std::int64_t{0});
    case ReduceOp::product:
      return type == at::kBool ? at::Scalar(true) : at::Scalar(std::int64_t{1});
    case ReduceOp::band:
      return type == at::kBool ? at::Scalar(true) : at::Scalar(std::int64_t{-1});
    case ReduceOp::min:
      return highest(type);
    case ReduceOp::max:
      return lowest(type);
  }
  return {};
}

}  // namespace

void reduce_flat(const at::Tensor& out, std::int64_t out_begin, const at::Tensor& in,
                 std::int64_t in_begin, std::int64_t count, ReduceOp op) {
  if (count == 0) return;
  const Extent to{out_begin, count};
  const Extent from{in_begin, count};
  reduce_box(out.view(-1), {&to, 1}, in.view(-1), {&from, 1}, op);
}

void reduce_box(const at::Tensor& out, std::span<const Extent> out_box, const at::Tensor& in,
                std::span<const Extent> in_box, ReduceOp op) {
  if (is_host(out, in) && (op == ReduceOp::sum || op == ReduceOp::avg)) {
    BoxLoops box(out, out_box, in, in_box);
    if (box.out == nullptr || add_host_box(std::move(box), out.scalar_type())) return;
  }
  reduce_view(box_view(out, out_box), box_view(in, in_box), op);
}

void divide(at::Tensor data, std::int64_t divisor) {
  if (divisor == 1 || data.numel() == 0) return;
  TESSERA_CHECK(!at::isIntegralType(data.scalar_type(), /*includeBool=*/true),
                "redistribute: an average (P(avg)) of dtype ", c10::toString(data.scalar_type()),
                " given; averages need a floating or complex dtype: convert first or use P(sum)");
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  data.div_(divisor);
}

void fill_with_identity(const at::Tensor& data, ReduceOp op) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  data.fill_(identity_of(data.scalar_type(), op));
}

}  // namespace tessera::detail
