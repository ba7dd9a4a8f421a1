#include <limits>

#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/op_arguments.h"
#include "tensor/op_tables.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename... Tensors>
R listed(const std::tuple<Tensors...>& tensors) {
  return std::apply([](const auto&... each) { return R{each...}; }, tensors);
}

R norm_over_dims(A a, double order) {
  const auto dims = a.rest(1);
  return {at::linalg_vector_norm(a[0], order, dims, a.flag(0))};
}

OpArguments zeros_among(Random& random) { return {{integers(random, any_shape(random), -1, 1)}}; }

OpArguments zeros_among_dims(Random& random) {
  auto made = some_dims(random);
  made.tensors[0] = integers(random, made[0].sizes().vec(), -1, 1);
  return made;
}

/// At least one dim, whose size is a number above the rank k that is asked for.
OpArguments kth(Random& random) {
  auto made = one_full_dim(random);
  const auto size = made[0].dim() == 0 ? 1 : made[0].size(made.number(0));
  made.numbers.push_back(random.between(1, size));
  return made;
}

OpArguments square(Random& random) {
  const auto size = full_size(random);
  return {{values(random, {size, any_size(random)})}};
}

OpArguments two_along_a_dim(Random& random) {
  const Shape shape = full_shape(random, 1);
  return {{doubles(random, shape), doubles(random, shape)}, {any_dim(random, std::ssize(shape))}};
}

OpArguments vector_of_counts(Random& random) {
  return {{integers(random, {any_size(random)}, 0, 6)}};
}

const std::vector<OpEntry>& reductions() {
  static const std::vector<OpEntry> table = {
      {"all", zeros_among, [](A a) { return R{a[0].all()}; }},
      {"all_dims", zeros_among_dims, [](A a) { return R{at::all(a[0], a.rest(1), a.flag(0))}; }},
      {"amax", some_full_dims, [](A a) { return R{at::amax(a[0], a.rest(1), a.flag(0))}; }},
      {"amin", some_full_dims, [](A a) { return R{at::amin(a[0], a.rest(1), a.flag(0))}; }},
      {"aminmax", one_full, [](A a) { return listed(at::aminmax(a[0])); }},
      {"any", zeros_among, [](A a) { return R{a[0].any()}; }},
      {"any_dims", zeros_among_dims, [](A a) { return R{at::any(a[0], a.rest(1), a.flag(0))}; }},
      {"argmax", one_full, [](A a) { return R{at::argmax(a[0])}; }},
      {"argmax_dim", one_full_dim, [](A a) { return R{at::argmax(a[0], a.number(0), true)}; }},
      {"argmin_dim", one_full_dim, [](A a) { return R{at::argmin(a[0], a.number(0))}; }},
      {"bincount", vector_of_counts, [](A a) { return R{at::bincount(a[0])}; }},
      {"cosine_similarity", two_along_a_dim,
       [](A a) { return R{at::cosine_similarity(a[0], a[1], a.number(0))}; }},
      {"count_nonzero", zeros_among, [](A a) { return R{at::count_nonzero(a[0])}; }},
      {"count_nonzero_dims", zeros_among_dims,
       [](A a) { return R{at::count_nonzero(a[0], a.rest(1))}; }},
      {"dist", two, [](A a) { return R{at::dist(a[0], a[1].to(a[0].dtype()), 3)}; }},
      {"frobenius_norm", square, [](A a) { return R{at::linalg_matrix_norm(a[0])}; }},
      {"histc", one_full, [](A a) { return R{at::histc(a[0].to(at::kDouble), 5, -2, 2)}; },
       OpCheck::values},
      {"integer_mean", one_integer, [](A a) { return R{a[0].mean(at::kDouble)}; }},
      {"integer_sum", one_integer, [](A a) { return R{a[0].sum()}; }},
      {"kthvalue", kth, [](A a) { return listed(at::kthvalue(a[0], a.number(1), a.number(0))); }},
      {"logsumexp", some_full_dims,
       [](A a) { return R{at::logsumexp(a[0], a.rest(1), a.flag(0))}; }},
      {"max", one_full, [](A a) { return R{a[0].max()}; }},
      {"max_dim", one_full_dim, [](A a) { return listed(a[0].max(a.number(0), true)); }},
      {"mean", one, [](A a) { return R{a[0].mean()}; }},
      {"mean_dims", some_dims, [](A a) { return R{at::mean(a[0], a.rest(1), a.flag(0))}; }},
      {"mean_dtype", some_dims,
       [](A a) { return R{at::mean(a[0], a.rest(1), a.flag(0), at::kDouble)}; }},
      {"median", one_full, [](A a) { return R{a[0].median()}; }},
      {"median_dim", one_full_dim, [](A a) { return listed(a[0].median(a.number(0))); }},
      {"min", one_full, [](A a) { return R{a[0].min()}; }},
      {"min_dim", one_full_dim, [](A a) { return listed(a[0].min(a.number(0))); }},
      {"mode", one_full_dim, [](A a) { return listed(at::mode(a[0], a.number(0))); }},
      {"nanmean", some_dims, [](A a) { return R{at::nanmean(a[0], a.rest(1), a.flag(0))}; }},
      {"nanmedian_dim", one_full_dim, [](A a) { return listed(a[0].nanmedian(a.number(0))); }},
      {"nansum", some_dims,
       [](A a) { return R{at::nansum(a[0].masked_fill(a[0] > 1, NAN), a.rest(1), a.flag(0))}; }},
      {"norm", one, [](A a) { return R{a[0].norm()}; }},
      {"norm_0", some_dims, [](A a) { return norm_over_dims(a, 0); }},
      {"norm_1", some_dims, [](A a) { return norm_over_dims(a, 1); }},
      {"norm_2", some_dims, [](A a) { return norm_over_dims(a, 2); }},
      {"norm_3", some_dims, [](A a) { return norm_over_dims(a, 3); }},
      {"norm_inf", some_full_dims, [](A a) { return norm_over_dims(a, kInfinity); }},
      {"norm_minus_inf", some_full_dims, [](A a) { return norm_over_dims(a, -kInfinity); }},
      {"norm_of_old", some_dims, [](A a) { return R{at::norm(a[0], 1.5, a.rest(1), a.flag(0))}; }},
      {"prod", one, [](A a) { return R{a[0].prod()}; }},
      {"prod_dim", one_dim, [](A a) { return R{a[0].prod(a.number(0), true)}; }},
      {"renorm", two_along_a_dim,
       [](A a) { return R{at::renorm(a[0].unsqueeze(0), 2, a.number(0) < 0 ? -1 : 0, 0.7)}; }},
      {"std_dims", some_full_dims,
       [](A a) { return R{at::std(a[0], a.rest(1), /*unbiased=*/false, a.flag(0))}; }},
      {"std_mean", one_full, [](A a) { return listed(at::std_mean(a[0], false)); }},
      {"sum", one, [](A a) { return R{a[0].sum()}; }},
      {"sum_dims", some_dims, [](A a) { return R{at::sum(a[0], a.rest(1), a.flag(0))}; }},
      {"sum_dtype", some_dims,
       [](A a) { return R{at::sum(a[0], a.rest(1), a.flag(0), at::kDouble)}; }},
      {"sum_of_bools", one_bool, [](A a) { return R{a[0].sum()}; }},
      {"trace", square, [](A a) { return R{at::trace(a[0])}; }},
      {"var_dims", some_full_dims,
       [](A a) { return R{at::var(a[0], a.rest(1), /*unbiased=*/false, a.flag(0))}; }},
      {"var_mean", some_full_dims,
       [](A a) { return listed(at::var_mean(a[0], a.rest(1), /*unbiased=*/false, a.flag(0))); }},
  };
  return table;
}

OpArguments top(Random& random) {
  auto made = one_full_dim(random);
  const auto size = made[0].dim() == 0 ? 1 : made[0].size(made.number(0));
  made.numbers.push_back(random.between(0, size));
  made.numbers.push_back(random.between(0, 1));
  return made;
}

OpArguments sorted_and_asked(Random& random) {
  const auto sorted = std::get<0>(doubles(random, {full_size(random)}).sort());
  return {{sorted, doubles(random, any_shape(random))}};
}

const std::vector<OpEntry>& scans() {
  static const std::vector<OpEntry> table = {
      {"argsort", one_dim, [](A a) { return R{at::argsort(a[0], a.number(0), true)}; }},
      {"bucketize", sorted_and_asked, [](A a) { return R{at::bucketize(a[1], a[0])}; }},
      {"cummax", one_full_dim, [](A a) { return listed(at::cummax(a[0], a.number(0))); }},
      {"cummin", one_full_dim, [](A a) { return listed(at::cummin(a[0], a.number(0))); }},
      {"cumprod", one_dim, [](A a) { return R{at::cumprod(a[0], a.number(0))}; }},
      {"cumsum", one_dim, [](A a) { return R{at::cumsum(a[0], a.number(0))}; }},
      {"diff", one_full_dim,
       [](A a) { return R{at::diff(a[0].unsqueeze(-1), 1, a.number(0) < 0 ? 0 : a.number(0))}; }},
      {"glu", two_along_a_dim,
       [](A a) {
         return R{at::glu(at::cat({a[0], a[1]}, a.number(0)), a.number(0))};
       }},
      {"log_softmax", one_dim, [](A a) { return R{at::log_softmax(a[0], a.number(0))}; }},
      {"logcumsumexp", one_dim, [](A a) { return R{at::logcumsumexp(a[0], a.number(0))}; }},
      {"msort", one_full, [](A a) { return R{at::msort(a[0])}; }},
      {"searchsorted", sorted_and_asked, [](A a) { return R{at::searchsorted(a[0], a[1])}; }},
      {"softmax", one_dim, [](A a) { return R{at::softmax(a[0], a.number(0))}; }},
      {"softmax_dtype", one_dim,
       [](A a) { return R{at::softmax(a[0], a.number(0), at::kDouble)}; }},
      {"softmin", one_dim, [](A a) { return R{at::softmax(-a[0], a.number(0))}; }},
      {"sort", one_dim, [](A a) { return listed(at::sort(a[0], a.number(0), false)); }},
      {"sort_stable", one_dim,
       [](A a) { return listed(at::sort(a[0], /*stable=*/true, a.number(0), true)); }},
      {"topk", top,
       [](A a) { return listed(at::topk(a[0], a.number(1), a.number(0), a.flag(2))); }},
      {"unique", one_integer, [](A a) { return R{std::get<0>(at::_unique2(a[0], true))}; }},
  };
  return table;
}

TEST(OpSweepTest, Reductions) { check_family("reduction", reductions(), 45); }
TEST(OpSweepTest, SoftmaxScansAndSorting) { check_family("scan", scans(), 45); }

}  // namespace

const std::vector<OpEntry>& reduction_table() { return reductions(); }
const std::vector<OpEntry>& scan_table() { return scans(); }

}  // namespace tessera::test
