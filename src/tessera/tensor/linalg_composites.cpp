#include "tessera/tensor/linalg_composites.h"

#include <algorithm>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/index.h>
#include <ATen/ops/linalg_eigvalsh.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include "tessera/base/check.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::detail {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

/// Values that all ranks know, beside a DTensor.
at::Tensor replicated_like(const at::Tensor& plain, const at::Tensor& like) {
  const DeviceMesh& mesh = mesh_of(like);
  return distribute_tensor(plain, mesh,
                           Placements(static_cast<std::size_t>(mesh.ndim()), Replicate()),
                           {.src_data_rank = std::nullopt});
}

/// Singular values, or the absolute eigenvalues of a Hermitian matrix.
at::Tensor spectrum(const at::Tensor& input, bool is_hermitian) {
  return is_hermitian ? at::linalg_eigvalsh(input).abs() : at::linalg_svdvals(input);
}

/// Below this part of the greatest one a singular value counts as zero, unless the caller says more.
double default_tolerance(const at::Tensor& input) {
  const double epsilon = at::toRealValueType(input.scalar_type()) == at::kFloat
                             ? std::numeric_limits<float>::epsilon()
                             : std::numeric_limits<double>::epsilon();
  return epsilon * static_cast<double>(std::max(input.size(-1), input.size(-2)));
}

/// Ranks of matrices without elements.
at::Tensor no_ranks(const at::Tensor& input) {
  return input.new_zeros(input.sizes().slice(0, static_cast<std::size_t>(input.dim() - 2)),
                         at::TensorOptions().dtype(at::kLong));
}

at::Tensor rank_by_numbers(const at::Tensor& input, std::optional<double> atol,
                           std::optional<double> rtol, bool hermitian) {
  if (input.numel() == 0) return no_ranks(input);
  const bool is_absolute = atol.has_value() && *atol > 0;
  const double part = rtol.value_or(is_absolute ? 0 : default_tolerance(input));
  const at::Tensor values = spectrum(input, hermitian);
  const at::Tensor least = values.amax(-1, /*keepdim=*/true).mul(part).clamp_min(atol.value_or(0));
  return values.gt(least).sum(-1);
}

at::Tensor rank_by_tensors(const at::Tensor& input, const OptionalTensor& atol,
                           const OptionalTensor& rtol, bool hermitian) {
  if (input.numel() == 0) return no_ranks(input);
  const at::Tensor values = spectrum(input, hermitian);
  const at::Tensor greatest = values.amax(-1);
  at::Tensor least = rtol ? greatest * *rtol : greatest * default_tolerance(input);
  if (atol && !rtol) least = least.masked_fill(atol->gt(0), 0);
  if (atol) least = at::maximum(least, *atol);
  return values.gt(least.unsqueeze(-1)).sum(-1);
}

at::Tensor rank_by_number(const at::Tensor& self, double tol, bool hermitian) {
  return rank_by_numbers(self, tol, 0.0, hermitian);
}

at::Tensor rank_by_tensor(const at::Tensor& input, const at::Tensor& tol, bool hermitian) {
  if (input.numel() == 0) return no_ranks(input);
  return spectrum(input, hermitian).gt(tol.unsqueeze(-1)).sum(-1);
}

at::Tensor matrix_power(const at::Tensor& self, std::int64_t n) {
  TESSERA_CHECK(
      self.dim() >= 2 && self.size(-1) == self.size(-2),
      "linalg.matrix_power: A must be batches of square matrices, but they are of shape [",
      joined(self.sizes(), ","), ']');
  if (n == 0) {
    const at::Tensor one = at::eye(self.size(-1), self.options());
    return self.clone().copy_(replicated_like(one, self));
  }
  at::Tensor square = n < 0 ? at::linalg_inv(self) : self;
  at::Tensor power;
  for (std::int64_t rest = n < 0 ? -n : n; rest > 0; rest /= 2) {
    if (rest % 2 == 1) power = power.defined() ? at::matmul(power, square) : square;
    if (rest > 1) square = at::matmul(square, square);
  }
  // libtorch returns a copy too.
  return power.is_same(self) ? self.clone() : power;
}

/// Places in a vector of `size`, `count` at a time in ascending order; one row each.
void add_choices(std::int64_t size, std::int64_t count, bool may_repeat,
                 std::vector<std::int64_t>& row, std::vector<std::int64_t>& all) {
  if (static_cast<std::int64_t>(row.size()) == count) {
    all.insert(all.end(), row.begin(), row.end());
    return;
  }
  const std::int64_t first = row.empty() ? 0 : row.back() + (may_repeat ? 0 : 1);
  for (std::int64_t i = first; i < size; ++i) {
    row.push_back(i);
    add_choices(size, count, may_repeat, row, all);
    row.pop_back();
  }
}

at::Tensor combinations(const at::Tensor& self, std::int64_t r, bool with_replacement) {
  TESSERA_CHECK(self.dim() == 1 && r >= 0, "combinations: a tensor of ", self.dim(),
                " dims and r=", r, " given; allowed are 1 dim and an r of 0 or more");
  if (r == 0) return self.new_empty({0});
  std::vector<std::int64_t> row;
  std::vector<std::int64_t> all;
  add_choices(self.size(0), r, with_replacement, row, all);
  const at::Tensor places = at::tensor(all, at::kLong).reshape({-1, r});
  return at::index(self, {std::optional(replicated_like(places, self))});
}

}  // namespace

void override_linalg_composites(torch::Library& library) {
  library.impl("linalg_matrix_rank", &rank_by_number);
  library.impl("linalg_matrix_rank.tol_tensor", &rank_by_tensor);
  library.impl("linalg_matrix_rank.atol_rtol_float", &rank_by_numbers);
  library.impl("linalg_matrix_rank.atol_rtol_tensor", &rank_by_tensors);
  library.impl("linalg_matrix_power", &matrix_power);
  library.impl("combinations", &combinations);
}

}  // namespace tessera::detail
