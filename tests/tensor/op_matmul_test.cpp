#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/op_arguments.h"
#include "tensor/op_tables.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;

OpArguments of_mm(Random& random) {
  const auto m = any_size(random), k = any_size(random), n = any_size(random);
  return {{doubles(random, {m, k}), doubles(random, {k, n})}};
}

OpArguments of_bmm(Random& random) {
  const auto b = any_size(random), m = full_size(random), k = any_size(random);
  return {{doubles(random, {b, m, k}), doubles(random, {b, k, full_size(random)})}};
}

OpArguments of_mv(Random& random) {
  const auto m = any_size(random), k = any_size(random);
  return {{doubles(random, {m, k}), doubles(random, {k})}};
}

OpArguments of_dot(Random& random) {
  const auto k = any_size(random);
  return {{doubles(random, {k}), doubles(random, {k})}};
}

OpArguments of_outer(Random& random) {
  const auto m = any_size(random), n = any_size(random);
  return {{doubles(random, {m, n}), doubles(random, {m}), doubles(random, {n})}};
}

OpArguments of_addmm(Random& random) {
  const auto m = any_size(random), k = any_size(random), n = full_size(random);
  return {{doubles(random, broadcastable(random, {m, n})), doubles(random, {m, k}),
           doubles(random, {k, n})}};
}

OpArguments of_addmv(Random& random) {
  const auto m = full_size(random), k = any_size(random);
  // libtorch forgets to broadcast what is added to an empty product.
  const auto added = k == 0 ? Shape{m} : broadcastable(random, {m});
  return {{doubles(random, added), doubles(random, {m, k}), doubles(random, {k})}};
}

OpArguments of_baddbmm(Random& random) {
  const auto b = full_size(random), m = full_size(random), k = any_size(random),
             n = full_size(random);
  return {{doubles(random, broadcastable(random, {b, m, n})), doubles(random, {b, m, k}),
           doubles(random, {b, k, n})}};
}

OpArguments of_addbmm(Random& random) {
  const auto b = full_size(random), m = full_size(random), k = full_size(random),
             n = full_size(random);
  return {{doubles(random, {m, n}), doubles(random, {b, m, k}), doubles(random, {b, k, n})}};
}

/// matmul broadcasts all dims but the last two.
OpArguments of_matmul(Random& random) {
  const Shape outer = full_shape(random, 0, 2);
  const auto m = full_size(random), k = full_size(random), n = full_size(random);
  Shape left = outer;
  left.insert(left.end(), {m, k});
  Shape right = broadcastable(random, outer);
  right.insert(right.end(), {k, n});
  if (random.one_in(6)) left = {k};
  if (random.one_in(6)) right = {k};
  return {{doubles(random, left), doubles(random, right)}};
}

OpArguments of_linear(Random& random) {
  Shape input = any_shape(random, 1, 3);
  input.back() = full_size(random);
  const auto features = full_size(random);
  return {{doubles(random, input), doubles(random, {features, input.back()}),
           doubles(random, {features})}};
}

OpArguments of_bilinear(Random& random) {
  const auto n = full_size(random), a = full_size(random), b = full_size(random),
             out = full_size(random);
  return {{doubles(random, {n, a}), doubles(random, {n, b}), doubles(random, {out, a, b}),
           doubles(random, {out})}};
}

OpArguments of_heads(Random& random) {
  const auto b = full_size(random), s = full_size(random), h = random.between(1, 4);
  return {{doubles(random, {b, s, h, 3}), doubles(random, {b, full_size(random), h, 3})}};
}

OpArguments well_conditioned(Random& random) {
  const auto n = full_size(random);
  const auto outer = random.between(1, 3);
  const auto a = doubles(random, {outer, n, n});
  return {{a.matmul(a.transpose(1, 2)) + 2 * torch::eye(n, torch::kDouble),
           doubles(random, {outer, n, full_size(random)})}};
}

OpArguments of_cross(Random& random) {
  Shape shape = full_shape(random, 1, 3);
  shape.back() = 3;
  return {{doubles(random, shape), doubles(random, shape)}};
}

OpArguments of_cdist(Random& random) {
  const auto k = full_size(random);
  return {{doubles(random, {full_size(random), k}), doubles(random, {full_size(random), k})}};
}

const std::vector<OpEntry>& matmuls() {
  static const std::vector<OpEntry> table = {
      {"addbmm", of_addbmm, [](A a) { return R{at::addbmm(a[0], a[1], a[2], 0.5, 2)}; }},
      {"addmm", of_addmm, [](A a) { return R{at::addmm(a[0], a[1], a[2])}; }},
      {"addmm_scaled", of_addmm, [](A a) { return R{at::addmm(a[0], a[1], a[2], 0.5, -2)}; }},
      {"addmv", of_addmv, [](A a) { return R{at::addmv(a[0], a[1], a[2], 2, 0.5)}; }},
      {"addr", of_outer, [](A a) { return R{at::addr(a[0], a[1], a[2], 2, 3)}; }},
      {"baddbmm", of_baddbmm, [](A a) { return R{at::baddbmm(a[0], a[1], a[2], 0.5, 2)}; }},
      {"bilinear", of_bilinear, [](A a) { return R{at::bilinear(a[0], a[1], a[2], a[3])}; }},
      {"bmm", of_bmm, [](A a) { return R{at::bmm(a[0], a[1])}; }},
      {"cdist", of_cdist, [](A a) { return R{at::cdist(a[0], a[1])}; }},
      {"cross", of_cross, [](A a) { return R{at::linalg_cross(a[0], a[1])}; }},
      {"cross_broadcast", of_cross,
       [](A a) { return R{at::linalg_cross(a[0], a[1].slice(0, 0, a[1].dim() > 1 ? 1 : 3))}; }},
      {"dot", of_dot, [](A a) { return R{at::dot(a[0], a[1])}; }},
      {"einsum_heads", of_heads,
       [](A a) {
         return R{at::einsum("bqhd,bkhd->bhqk", {a[0], a[1]})};
       }},
      {"einsum_sums", of_bmm,
       [](A a) {
         return R{at::einsum("bmk,bkn->n", {a[0], a[1]})};
       }},
      {"inner", of_cdist, [](A a) { return R{at::inner(a[0], a[1])}; }},
      {"kron", of_mv, [](A a) { return R{at::kron(a[0].contiguous(), a[1])}; }},
      {"linalg_cholesky", well_conditioned, [](A a) { return R{at::linalg_cholesky(a[0])}; }},
      {"linalg_det", well_conditioned, [](A a) { return R{at::linalg_det(a[0])}; }},
      {"linalg_inv", well_conditioned, [](A a) { return R{at::linalg_inv(a[0])}; }},
      {"linalg_solve", well_conditioned, [](A a) { return R{at::linalg_solve(a[0], a[1])}; }},
      {"linear", of_linear, [](A a) { return R{at::linear(a[0], a[1])}; }},
      {"linear_bias", of_linear, [](A a) { return R{at::linear(a[0], a[1], a[2])}; }},
      {"matmul", of_matmul, [](A a) { return R{at::matmul(a[0], a[1])}; }},
      {"matrix_exp", well_conditioned, [](A a) { return R{at::matrix_exp(a[0] * 0.1)}; },
       OpCheck::values},
      {"mm", of_mm, [](A a) { return R{at::mm(a[0], a[1])}; }},
      {"mm_chain", of_mm,
       [](A a) { return R{at::mm(at::mm(a[0], a[1]), at::mm(a[0], a[1]).t())}; }},
      {"mm_integers", of_mm,
       [](A a) { return R{at::mm((a[0] * 4).to(at::kLong), (a[1] * 4).to(at::kLong))}; }},
      {"mm_transposed", of_mm, [](A a) { return R{at::mm(a[1].t(), a[0].t())}; }},
      {"mv", of_mv, [](A a) { return R{at::mv(a[0], a[1])}; }},
      {"outer", of_outer, [](A a) { return R{at::outer(a[1], a[2])}; }},
      {"tensordot", of_heads,
       [](A a) {
         return R{at::tensordot(a[0], a[1], at::IntArrayRef({2, 3}), at::IntArrayRef({2, 3}))};
       }},
      {"vdot", of_dot, [](A a) { return R{at::vdot(a[0], a[1])}; }},
  };
  return table;
}

TEST(OpSweepTest, Matmul) { check_family("matmul", matmuls(), 45); }

}  // namespace

const std::vector<OpEntry>& matmul_table() { return matmuls(); }

}  // namespace tessera::test
