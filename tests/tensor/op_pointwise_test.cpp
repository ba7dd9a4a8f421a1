#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/op_arguments.h"
#include "tensor/op_tables.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;

const std::vector<OpEntry>& unary_ops() {
  static const std::vector<OpEntry> table = {
      {"abs", one, [](A a) { return R{a[0].abs()}; }},
      {"acos", one_unit, [](A a) { return R{a[0].acos()}; }},
      {"acosh", one_positive, [](A a) { return R{(a[0] + 1).acosh()}; }},
      {"add_number", one, [](A a) { return R{a[0] + 3}; }},
      {"asin", one_unit, [](A a) { return R{a[0].asin()}; }},
      {"atan", one, [](A a) { return R{a[0].atan()}; }},
      {"atanh", one_unit, [](A a) { return R{a[0].atanh()}; }},
      {"bitwise_not", one_integer, [](A a) { return R{a[0].bitwise_not()}; }},
      {"ceil", one, [](A a) { return R{a[0].ceil()}; }},
      {"celu", one, [](A a) { return R{at::celu(a[0], 1.3)}; }},
      {"clamp", one, [](A a) { return R{a[0].clamp(-0.5, 0.7)}; }},
      {"clone", one, [](A a) { return R{a[0].clone()}; }},
      {"contiguous", one, [](A a) { return R{a[0].contiguous()}; }},
      {"cos", one, [](A a) { return R{a[0].cos()}; }},
      {"cosh", one, [](A a) { return R{a[0].cosh()}; }},
      {"deg2rad", one, [](A a) { return R{a[0].deg2rad()}; }},
      {"digamma", one_positive, [](A a) { return R{a[0].digamma()}; }},
      {"divide_number", one, [](A a) { return R{a[0] / 3}; }},
      {"elu", one, [](A a) { return R{at::elu(a[0], 0.7)}; }},
      {"erf", one, [](A a) { return R{a[0].erf()}; }},
      {"erfc", one, [](A a) { return R{a[0].erfc()}; }},
      {"erfinv", one_unit, [](A a) { return R{a[0].erfinv()}; }},
      {"exp", one, [](A a) { return R{a[0].exp()}; }},
      {"exp2", one, [](A a) { return R{a[0].exp2()}; }},
      {"expm1", one, [](A a) { return R{a[0].expm1()}; }},
      {"floor", one, [](A a) { return R{a[0].floor()}; }},
      {"frac", one, [](A a) { return R{a[0].frac()}; }},
      {"gelu", one, [](A a) { return R{at::gelu(a[0])}; }},
      {"gelu_tanh", one, [](A a) { return R{at::gelu(a[0], "tanh")}; }},
      {"hardshrink", one, [](A a) { return R{at::hardshrink(a[0], 0.4)}; }},
      {"hardsigmoid", one, [](A a) { return R{at::hardsigmoid(a[0])}; }},
      {"hardswish", one, [](A a) { return R{at::hardswish(a[0])}; }},
      {"hardtanh", one, [](A a) { return R{at::hardtanh(a[0], -0.6, 0.8)}; }},
      {"isfinite", one, [](A a) { return R{at::isfinite(a[0])}; }},
      {"isnan", one, [](A a) { return R{at::isnan(a[0])}; }},
      {"leaky_relu", one, [](A a) { return R{at::leaky_relu(a[0], 0.1)}; }},
      {"lgamma", one_positive, [](A a) { return R{a[0].lgamma()}; }},
      {"log", one_positive, [](A a) { return R{a[0].log()}; }},
      {"log10", one_positive, [](A a) { return R{a[0].log10()}; }},
      {"log1p", one_positive, [](A a) { return R{a[0].log1p()}; }},
      {"log2", one_positive, [](A a) { return R{a[0].log2()}; }},
      {"log_sigmoid", one, [](A a) { return R{at::log_sigmoid(a[0])}; }},
      {"logical_not", one_bool, [](A a) { return R{a[0].logical_not()}; }},
      {"logit", one_unit, [](A a) { return R{at::logit(a[0], 1e-3)}; }},
      {"mish", one, [](A a) { return R{at::mish(a[0])}; }},
      {"multiply_number", one, [](A a) { return R{a[0] * -2.5}; }},
      {"nan_to_num", one, [](A a) { return R{at::nan_to_num(a[0] / a[0].relu(), 0.5, 2, -2)}; }},
      {"neg", one, [](A a) { return R{-a[0]}; }},
      {"number_divided", one_positive, [](A a) { return R{2 / a[0]}; }},
      {"number_minus", one, [](A a) { return R{1 - a[0]}; }},
      {"pow_number", one_positive, [](A a) { return R{a[0].pow(2.5)}; }},
      {"rad2deg", one, [](A a) { return R{a[0].rad2deg()}; }},
      {"reciprocal", one_positive, [](A a) { return R{a[0].reciprocal()}; }},
      {"relu", one, [](A a) { return R{a[0].relu()}; }},
      {"relu6", one, [](A a) { return R{at::relu6(a[0] * 4)}; }},
      {"round", one, [](A a) { return R{a[0].round()}; }},
      {"rsqrt", one_positive, [](A a) { return R{a[0].rsqrt()}; }},
      {"selu", one, [](A a) { return R{at::selu(a[0])}; }},
      {"sgn", one, [](A a) { return R{a[0].sgn()}; }},
      {"sigmoid", one, [](A a) { return R{a[0].sigmoid()}; }},
      {"sign", one, [](A a) { return R{a[0].sign()}; }},
      {"signbit", one, [](A a) { return R{a[0].signbit()}; }},
      {"silu", one, [](A a) { return R{at::silu(a[0])}; }},
      {"sin", one, [](A a) { return R{a[0].sin()}; }},
      {"sinc", one, [](A a) { return R{a[0].sinc()}; }},
      {"sinh", one, [](A a) { return R{a[0].sinh()}; }},
      {"softplus", one, [](A a) { return R{at::softplus(a[0], 2)}; }},
      {"softshrink", one, [](A a) { return R{at::softshrink(a[0], 0.4)}; }},
      {"sqrt", one_positive, [](A a) { return R{a[0].sqrt()}; }},
      {"square", one, [](A a) { return R{a[0].square()}; }},
      {"tan", one_unit, [](A a) { return R{a[0].tan()}; }},
      {"tanh", one, [](A a) { return R{a[0].tanh()}; }},
      {"threshold", one, [](A a) { return R{at::threshold(a[0], 0.2, 0.9)}; }},
      {"to_float", one, [](A a) { return R{a[0].to(at::kFloat)}; }},
      {"to_integer", one, [](A a) { return R{(a[0] * 9).to(at::kLong)}; }},
      {"trunc", one, [](A a) { return R{a[0].trunc()}; }},
  };
  return table;
}

const std::vector<OpEntry>& binary_ops() {
  static const std::vector<OpEntry> table = {
      {"add", two_broadcast, [](A a) { return R{a[0] + a[1]}; }},
      {"add_alpha", two_broadcast, [](A a) { return R{at::add(a[0], a[1], 2)}; }},
      {"add_one_element", one, [](A a) { return R{a[0] + torch::tensor(1.5, a[0].dtype())}; }},
      {"addcdiv", three_broadcast, [](A a) { return R{at::addcdiv(a[0], a[1], a[2], 0.5)}; }},
      {"addcmul", three_broadcast, [](A a) { return R{at::addcmul(a[0], a[1], a[2], 0.5)}; }},
      {"atan2", two_positive, [](A a) { return R{at::atan2(a[0], a[1])}; }},
      {"bitwise_and", two_integers_broadcast, [](A a) { return R{a[0] & a[1]}; }},
      {"bitwise_or", two_integers_broadcast, [](A a) { return R{a[0] | a[1]}; }},
      {"bitwise_xor", two_integers_broadcast, [](A a) { return R{a[0] ^ a[1]}; }},
      {"clamp_tensors", three_broadcast,
       [](A a) { return R{at::clamp(a[0], std::optional(a[1]), std::optional(a[2]))}; }},
      {"complex", two,
       [](A a) { return R{at::complex(a[0].to(at::kDouble), a[1].to(at::kDouble))}; }},
      {"complex_multiply", three,
       [](A a) { return R{at::complex(a[0], a[1]) * at::complex(a[1], a[2])}; }},
      {"complex_parts", two,
       [](A a) {
         const auto z = at::complex(a[0].to(at::kDouble), a[1].to(at::kDouble));
         return R{z.conj() * z, at::real(z), at::imag(z * 2)};
       }},
      {"copysign", two_broadcast, [](A a) { return R{at::copysign(a[0], a[1])}; }},
      {"divide", two_positive, [](A a) { return R{a[0] / a[1]}; }},
      {"divide_floor", two_positive, [](A a) { return R{at::div(a[0], a[1], "floor")}; }},
      {"divide_integers", two_integers_broadcast, [](A a) { return R{a[0] / a[1]}; }},
      {"divide_trunc", two_positive, [](A a) { return R{at::div(a[0], a[1], "trunc")}; }},
      {"eq", two_integers_broadcast, [](A a) { return R{a[0] == a[1]}; }},
      {"float_power", two_positive, [](A a) { return R{at::float_power(a[0], a[1])}; }},
      {"floor_divide", two_integers_broadcast, [](A a) { return R{at::floor_divide(a[0], a[1])}; }},
      {"fmax", two_broadcast, [](A a) { return R{at::fmax(a[0], a[1])}; }},
      {"fmin", two_broadcast, [](A a) { return R{at::fmin(a[0], a[1])}; }},
      {"fmod", two_positive, [](A a) { return R{at::fmod(a[0], a[1])}; }},
      {"greater", two_broadcast,
       [](A a) {
         return R{a[0] > a[1], a[0] >= a[1]};
       }},
      {"heaviside", two, [](A a) { return R{at::heaviside(a[0], a[1].to(a[0].dtype()))}; },
       OpCheck::values},
      {"hypot", two_positive, [](A a) { return R{at::hypot(a[0], a[1])}; }},
      {"lerp_number", two, [](A a) { return R{at::lerp(a[0], a[1].to(a[0].dtype()), 0.3)}; }},
      {"lerp_tensor", three_broadcast, [](A a) { return R{at::lerp(a[0], a[1], a[2])}; }},
      {"less", two_broadcast,
       [](A a) {
         return R{a[0] < a[1], a[0] <= a[1]};
       }},
      {"logaddexp", two_broadcast, [](A a) { return R{at::logaddexp(a[0], a[1])}; }},
      {"logical_and", two_integers_broadcast, [](A a) { return R{at::logical_and(a[0], a[1])}; }},
      {"logical_xor", two_integers_broadcast, [](A a) { return R{at::logical_xor(a[0], a[1])}; }},
      {"masked_fill", one_and_mask, [](A a) { return R{a[0].masked_fill(a[1], 4)}; }},
      {"masked_fill_one_element", one_and_mask,
       [](A a) { return R{a[0].masked_fill(a[1], torch::tensor(4.0, a[0].dtype()))}; }},
      {"maximum", two_broadcast, [](A a) { return R{at::maximum(a[0], a[1])}; }},
      {"minimum", two_broadcast, [](A a) { return R{at::minimum(a[0], a[1])}; }},
      {"multiply", two_broadcast, [](A a) { return R{a[0] * a[1]}; }},
      {"multiply_integers", two_integers_broadcast, [](A a) { return R{a[0] * a[1]}; }},
      {"multiply_mixed", two_broadcast, [](A a) { return R{a[0] * a[1].to(at::kLong)}; }},
      {"ne", two_integers_broadcast, [](A a) { return R{a[0] != a[1]}; }},
      {"polar", two_positive,
       [](A a) { return R{at::polar(a[0].to(at::kDouble), a[1].to(at::kDouble))}; }},
      {"pow_of_number", one, [](A a) { return R{at::pow(2.0, a[0])}; }},
      {"pow_tensor", two_positive, [](A a) { return R{at::pow(a[0], a[1])}; }},
      {"prelu", two,
       [](A a) {
         return R{at::prelu(a[0].to(at::kDouble), a[1].to(at::kDouble).mean().reshape({1}))};
       }},
      {"remainder", two_positive, [](A a) { return R{at::remainder(a[0], a[1])}; }},
      {"same_twice", one, [](A a) { return R{a[0] * a[0] + a[0]}; }},
      {"subtract", two_broadcast, [](A a) { return R{a[0] - a[1]}; }},
      {"subtract_alpha", two_broadcast, [](A a) { return R{at::sub(a[0], a[1], 3)}; }},
      {"type_promotion", two_broadcast, [](A a) { return R{a[0] + a[1].to(at::kInt)}; }},
      {"where", mask_and_two, [](A a) { return R{at::where(a[0], a[1], a[2])}; }},
      {"where_number", mask_and_two, [](A a) { return R{at::where(a[0], a[1], 2.0)}; }},
      {"where_numbers", one_bool, [](A a) { return R{at::where(a[0], 1.0, 2.0)}; }},
      {"xlogy", two_positive, [](A a) { return R{at::xlogy(a[0], a[1])}; }},
  };
  return table;
}

TEST(OpSweepTest, PointwiseOfOne) { check_family("unary", unary_ops(), 40); }
TEST(OpSweepTest, PointwiseOfSeveral) { check_family("binary", binary_ops(), 40); }

}  // namespace

const std::vector<OpEntry>& pointwise_table() { return binary_ops(); }
const std::vector<OpEntry>& unary_table() { return unary_ops(); }

}  // namespace tessera::test
