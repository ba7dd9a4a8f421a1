#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/op_arguments.h"
#include "tensor/op_tables.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;

Shape with(Shape shape, std::initializer_list<std::int64_t> more) {
  shape.insert(shape.end(), more);
  return shape;
}

/// Symmetric with eigenvalues that are apart and at least 2; right sides, and a vector per matrix.
/// The right sides' samples are broadcast.
OpArguments matrices(Random& random) {
  const Shape samples = full_shape(random, 0, 2);
  const auto n = random.between(1, 4);
  const auto a = doubles(random, with(samples, {n, n}));
  const auto apart = torch::diag(torch::arange(n, torch::kDouble) * 3 + 2);
  return {{a.matmul(a.transpose(-2, -1)) + apart,
           doubles(random, with(broadcastable(random, samples), {n, random.between(1, 3)})),
           doubles(random, with(samples, {n}))}};
}

/// Any number of rows and columns, at least as many rows.
OpArguments tall_matrices(Random& random) {
  const Shape samples = full_shape(random, 0, 2);
  const auto columns = random.between(1, 3), rows = columns + random.between(0, 2);
  return {{doubles(random, with(samples, {rows, columns})) +
               2 * torch::eye(rows, columns, torch::kDouble),
           doubles(random, with(samples, {rows, random.between(1, 2)}))}};
}

R factors_of_lu(A a) {
  const auto [p, l, u] = at::linalg_lu(a[0]);
  return {p, l, u};
}

R unpacked_lu(A a) {
  const auto [lu, pivots] = at::linalg_lu_factor(a[0]);
  const auto [p, l, u] = at::lu_unpack(lu, pivots);
  const auto [not_asked, lower, upper] = at::lu_unpack(lu, pivots, true, false);
  return {p, l, u, lower, upper};
}

R solved_by_lu(A a) {
  const auto [lu, pivots] = at::linalg_lu_factor(a[0]);
  return {at::linalg_lu_solve(lu, pivots, a[1])};
}

R solved_by_ldl(A a) {
  const auto [ld, pivots] = at::linalg_ldl_factor(a[0]);
  return {at::linalg_ldl_solve(ld, pivots, a[1].expand_as(at::matmul(a[0], a[1])))};
}

R by_reflectors(A a) {
  const auto [reflectors, tau] = at::geqrf(a[0]);
  return {reflectors, tau, at::linalg_householder_product(reflectors, tau),
          at::ormqr(reflectors, tau, a[1])};
}

const std::vector<OpEntry>& linalg() {
  static const std::vector<OpEntry> table = {
      {"cholesky", matrices, [](A a) { return R{at::linalg_cholesky(a[0])}; }},
      {"cholesky_inverse", matrices,
       [](A a) { return R{at::cholesky_inverse(at::linalg_cholesky(a[0]))}; }},
      {"cholesky_solve", matrices,
       [](A a) { return R{at::cholesky_solve(a[1], at::linalg_cholesky(a[0]))}; }},
      {"det", matrices, [](A a) { return R{at::linalg_det(a[0])}; }},
      {"eig", matrices, [](A a) { return R{at::real(std::get<0>(at::linalg_eig(a[0]))).sum(-1)}; }},
      {"eigh", matrices,
       [](A a) {
         const auto [values, vectors] = at::linalg_eigh(a[0]);
         return R{values, vectors.abs()};
       }},
      {"inv", matrices, [](A a) { return R{at::linalg_inv(a[0])}; }},
      {"ldl_solve", matrices, solved_by_ldl, OpCheck::values},
      {"logdet", matrices, [](A a) { return R{at::logdet(a[0])}; }},
      {"lu", matrices, factors_of_lu},
      {"lu_solve", matrices, solved_by_lu},
      {"lu_unpack", matrices, unpacked_lu},
      {"matrix_exp", matrices, [](A a) { return R{at::matrix_exp((a[0] * 0.1).contiguous())}; },
       OpCheck::values},
      {"matrix_power", matrices,
       [](A a) {
         return R{at::linalg_matrix_power(a[0], -2), at::linalg_matrix_power(a[0], 0),
                  at::linalg_matrix_power(a[0], 1), at::linalg_matrix_power(a[0] * 0.2, 5)};
       }},
      {"matrix_rank", tall_matrices,
       [](A a) {
         const auto square = at::matmul(a[0], a[0].transpose(-2, -1));
         const auto tolerance = at::full_like(a[0].select(-1, 0).select(-1, 0), 0.5);
         return R{at::linalg_matrix_rank(square), at::linalg_matrix_rank(square, 0.3, 0.1, true),
                  at::linalg_matrix_rank(square, tolerance, {}, true),
                  at::linalg_matrix_rank(square, tolerance)};
       },
       OpCheck::values},
      {"pinv", tall_matrices, [](A a) { return R{at::linalg_pinv(a[0], 0.01, 0.01)}; }},
      {"qr", tall_matrices,
       [](A a) {
         const auto [q, r] = at::linalg_qr(a[0]);
         return R{q, r};
       }},
      {"reflectors", tall_matrices, by_reflectors, OpCheck::values},
      {"slogdet", matrices,
       [](A a) {
         const auto [sign, value] = at::linalg_slogdet(a[0]);
         return R{sign, value};
       }},
      {"solve", matrices, [](A a) { return R{at::linalg_solve(a[0], a[1])}; }},
      {"solve_triangular", matrices,
       [](A a) { return R{at::linalg_solve_triangular(at::linalg_cholesky(a[0]), a[1], false)}; }},
      {"solve_vectors", matrices, [](A a) { return R{at::linalg_solve(a[0], a[2])}; }},
      {"svdvals", tall_matrices, [](A a) { return R{at::linalg_svdvals(a[0])}; }},
  };
  return table;
}

/// numbers: dim, and how many elements are transformed.
OpArguments signals(Random& random) {
  const Shape shape = full_shape(random, 1, 3);
  const auto dim = any_dim(random, std::ssize(shape));
  return {{doubles(random, shape), doubles(random, shape)}, {dim, random.between(1, 6)}};
}

at::Tensor complex_of(A a) { return at::complex(a[0], a[1]); }

const std::vector<OpEntry>& transforms() {
  static const std::vector<OpEntry> table = {
      {"fft", signals,
       [](A a) { return R{at::fft_fft(complex_of(a), std::nullopt, a.number(0))}; }},
      {"fft_of_real", signals, [](A a) { return R{at::fft_fft(a[0], a.number(1), a.number(0))}; }},
      {"fftn", signals, [](A a) { return R{at::fft_fftn(complex_of(a))}; }},
      {"hfft", signals,
       [](A a) { return R{at::fft_hfft(complex_of(a), a.number(1), a.number(0))}; }},
      {"ifft", signals,
       [](A a) { return R{at::fft_ifft(complex_of(a), std::nullopt, a.number(0), "ortho")}; }},
      {"irfft", signals,
       [](A a) { return R{at::fft_irfft(complex_of(a), a.number(1), a.number(0))}; }},
      {"rfft", signals, [](A a) { return R{at::fft_rfft(a[0], std::nullopt, a.number(0))}; }},
      {"rfftn", signals, [](A a) { return R{at::fft_rfftn(a[0])}; }},
  };
  return table;
}

TEST(OpSweepTest, LinearAlgebra) { check_family("linalg", linalg(), 40); }
TEST(OpSweepTest, FourierTransforms) { check_family("fft", transforms(), 40); }

}  // namespace
}  // namespace tessera::test
