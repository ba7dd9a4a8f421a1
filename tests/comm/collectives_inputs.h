#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "support/rank_test.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/world.h"
#include "tessera/layout/placement.h"

namespace tessera::test {

using Tensors = std::vector<at::Tensor>;
using Sizes = std::vector<std::int64_t>;

inline const std::vector<at::ScalarType> kIntegers = {
    at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16, at::kUInt32, at::kUInt64};
inline const std::vector<at::ScalarType> kFloats = {
    at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kFloat8_e5m2, at::kFloat8_e4m3fn};
inline const std::vector<at::ScalarType> kComplex = {at::kComplexHalf, at::kComplexFloat,
                                                     at::kComplexDouble};

inline std::vector<at::ScalarType> every_dtype() {
  std::vector<at::ScalarType> all = kIntegers;
  all.insert(all.end(), kFloats.begin(), kFloats.end());
  all.insert(all.end(), kComplex.begin(), kComplex.end());
  all.push_back(at::kBool);
  return all;
}

/// The dtype of `type`'s kind in which small numbers are computed without rounding.
inline at::ScalarType wide(at::ScalarType type) {
  if (at::isComplexType(type)) return at::kComplexDouble;
  return at::isFloatingType(type) ? at::kDouble : at::kLong;
}

/// Small whole numbers, different for each rank, that every dtype can hold, and the sums and
/// products of four of them too.
inline at::Tensor pattern(at::IntArrayRef shape, std::int64_t rank, at::ScalarType type) {
  const at::Tensor counter = at::arange(c10::multiply_integers(shape), at::kLong) * 7 + rank * 5;
  if (type == at::kBool) return counter.remainder(3).eq(0).view(shape);
  const bool has_sign = at::isSignedType(type) && type != at::kFloat8_e4m3fn;
  at::Tensor values = has_sign ? counter.remainder(5) - 2 : counter.remainder(3);
  if (at::isComplexType(type)) {
    values = at::complex(values.to(at::kDouble), ((counter + 1).remainder(3) - 1).to(at::kDouble));
  }
  return values.view(shape).to(type);
}

/// What every member passes, computed by each alone.
inline Tensors patterns(at::IntArrayRef shape, std::int64_t ranks, at::ScalarType type) {
  Tensors all;
  for (std::int64_t rank = 0; rank < ranks; ++rank) all.push_back(pattern(shape, rank, type));
  return all;
}

/// The same values with other strides: a transposed copy, transposed.
inline at::Tensor with_odd_strides(const at::Tensor& x) {
  if (x.dim() < 2) {
    const at::Tensor spread = at::zeros({2 * x.numel() + 1}, x.options());
    at::Tensor view = spread.as_strided(x.sizes(), x.dim() == 0 ? Sizes{} : Sizes{2}, 1);
    return view.copy_(x);
  }
  return x.transpose(0, -1).contiguous().transpose(0, -1);
}

inline std::string bytes_of(const at::Tensor& x) {
  const at::Tensor whole = x.resolve_conj().contiguous();
  return {static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()};
}

/// Expects the same dtype, shape and bits.
inline void expect_same_bits(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
  EXPECT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(bytes_of(actual) == bytes_of(expected)) << "different bits";
}

/// Expects the same dtype, shape and values.
inline void expect_same_values(const at::Tensor& actual, const at::Tensor& expected,
                               double tolerance = 0) {
  EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
  ASSERT_EQ(actual.sizes(), expected.sizes());
  const at::ScalarType type = wide(expected.scalar_type());
  EXPECT_TRUE(at::allclose(actual.to(type), expected.to(type), tolerance, tolerance))
      << actual.to(type) << "\ninstead of\n"
      << expected.to(type);
}

inline at::Tensor reduce_two(const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return a + b;
    case ReduceOp::min:
      return at::minimum(a, b);
    case ReduceOp::max:
      return at::maximum(a, b);
    case ReduceOp::product:
      return a * b;
    case ReduceOp::band:
      return a.bitwise_and(b);
    case ReduceOp::bor:
      return a.bitwise_or(b);
    default:
      return a.bitwise_xor(b);
  }
}

/// The reduction in a dtype that does not round, then converted.
inline at::Tensor reduced(const Tensors& all, ReduceOp op) {
  const at::ScalarType type = all.front().scalar_type();
  at::Tensor result = all.front().to(wide(type));
  for (std::size_t i = 1; i < all.size(); ++i) {
    result = reduce_two(result, all[i].to(wide(type)), op);
  }
  if (op == ReduceOp::avg) result = result / static_cast<double>(all.size());
  // Sums of truths are truths again.
  return result.to(type);
}

/// What the calling rank's exception of type `Thrown` says.
template <typename Thrown>
std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Thrown& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "something else was thrown: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace tessera::test
