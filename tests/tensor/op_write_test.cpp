#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/op_arguments.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;

/// What the op is done to: a copy of the first argument, so that leaves stay as they are.
at::Tensor copied(A a) { return a[0].clone(); }

OpArguments of_mm(Random& random) {
  const auto m = full_size(random), k = full_size(random), n = full_size(random);
  return {{doubles(random, {m, n}), doubles(random, {m, k}), doubles(random, {k, n})}};
}

OpArguments of_bmm(Random& random) {
  const auto b = full_size(random), m = full_size(random), k = full_size(random),
             n = full_size(random);
  return {{doubles(random, {b, m, n}), doubles(random, {b, m, k}), doubles(random, {b, k, n})}};
}

OpArguments of_list(Random& random) {
  const auto rows = full_size(random), columns = full_size(random), count = full_size(random);
  return {{doubles(random, {rows, columns}), integers(random, {count}, 0, rows - 1),
           doubles(random, {count, columns})}};
}

OpArguments of_gather(Random& random) {
  const auto rows = full_size(random), columns = full_size(random);
  return {{doubles(random, {rows, columns}), integers(random, {1, columns}, 0, rows - 1),
           doubles(random, {1, columns})}};
}

const std::vector<OpEntry>& in_place() {
  static const std::vector<OpEntry> table = {
      {"add_", one_and_smaller, [](A a) { return R{copied(a).add_(a[1], 2)}; }},
      {"add_number_", one, [](A a) { return R{copied(a).add_(2)}; }},
      {"addcdiv_", one_and_two_smaller, [](A a) { return R{copied(a).addcdiv_(a[1], a[2], 0.5)}; }},
      {"addcmul_", one_and_two_smaller, [](A a) { return R{copied(a).addcmul_(a[1], a[2], 0.5)}; }},
      {"addmm_", of_mm, [](A a) { return R{copied(a).addmm_(a[1], a[2], 0.5, 2)}; }},
      {"baddbmm_", of_bmm, [](A a) { return R{copied(a).baddbmm_(a[1], a[2])}; }},
      {"clamp_", one, [](A a) { return R{copied(a).clamp_(-0.5, 0.5)}; }},
      {"copy_", one_and_smaller, [](A a) { return R{copied(a).copy_(a[1])}; }},
      {"cumsum_", one_dim, [](A a) { return R{copied(a).cumsum_(a.number(0))}; }},
      {"div_", one_and_two_smaller, [](A a) { return R{copied(a).div_(a[2])}; }},
      {"div_number_", one, [](A a) { return R{copied(a).div_(3)}; }},
      {"exp_", one, [](A a) { return R{copied(a).exp_()}; }},
      {"fill_", one, [](A a) { return R{copied(a).fill_(3)}; }, OpCheck::values},
      {"gt_", one, [](A a) { return R{copied(a).gt_(0)}; }, OpCheck::values},
      {"index_add_", of_list, [](A a) { return R{copied(a).index_add_(0, a[1], a[2])}; }},
      {"index_fill_", of_list, [](A a) { return R{copied(a).index_fill_(0, a[1], 2)}; }},
      {"index_put_", of_list,
       [](A a) {
         auto x = copied(a);
         return R{x.index_put_({a[1]}, a[2], true)};
       }},
      {"lerp_", two, [](A a) { return R{copied(a).lerp_(a[1].to(a[0].dtype()), 0.3)}; }},
      {"lerp_tensor_", one_and_two_smaller, [](A a) { return R{copied(a).lerp_(a[1], a[2])}; }},
      {"masked_fill_", one_and_mask, [](A a) { return R{copied(a).masked_fill_(a[1], 2)}; }},
      {"mul_", one_and_smaller, [](A a) { return R{copied(a).mul_(a[1])}; }},
      {"mul_number_", one, [](A a) { return R{copied(a).mul_(2)}; }},
      {"neg_", one, [](A a) { return R{copied(a).neg_()}; }},
      {"pow_", one_positive, [](A a) { return R{copied(a).pow_(2)}; }},
      {"relu_", one, [](A a) { return R{copied(a).relu_()}; }},
      {"scatter_", of_gather, [](A a) { return R{copied(a).scatter_(0, a[1], a[2])}; }},
      {"scatter_add_", of_gather, [](A a) { return R{copied(a).scatter_add_(0, a[1], a[2])}; }},
      {"several_in_a_row", one_and_two_smaller,
       [](A a) { return R{copied(a).mul_(2).add_(a[1]).div_(a[2]).tanh_()}; }},
      {"sigmoid_", one, [](A a) { return R{copied(a).sigmoid_()}; }},
      {"sqrt_", one_positive, [](A a) { return R{copied(a).sqrt_()}; }},
      {"squeeze_", one, [](A a) { return R{copied(a).squeeze_()}; }},
      {"sub_", one_and_smaller, [](A a) { return R{copied(a).sub_(a[1])}; }},
      {"t_", of_mm, [](A a) { return R{copied(a).t_()}; }},
      {"transpose_", of_bmm, [](A a) { return R{copied(a).transpose_(0, 2)}; }},
      {"tril_", of_mm, [](A a) { return R{copied(a).tril_()}; }},
      {"unsqueeze_", one, [](A a) { return R{copied(a).unsqueeze_(0)}; }},
      {"zero_", one, [](A a) { return R{copied(a).zero_()}; }, OpCheck::values},
  };
  return table;
}

template <typename Write>
R written(const at::Tensor& out, const Write& write) {
  const at::NoGradGuard no_history;
  auto result = out.detach().clone();
  write(result);
  return {result};
}

const std::vector<OpEntry>& outs() {
  static const std::vector<OpEntry> table = {
      {"add_out", two,
       [](A a) {
         return written(a[0].to(at::kDouble), [&](auto& out) { at::add_out(out, a[0], a[1]); });
       },
       OpCheck::values},
      {"addmm_out", of_mm,
       [](A a) { return written(a[0], [&](auto& out) { at::addmm_out(out, a[0], a[1], a[2]); }); },
       OpCheck::values},
      {"amax_out", of_mm,
       [](A a) {
         return written(a[0].select(1, 0), [&](auto& out) { at::amax_out(out, a[0], 1); });
       },
       OpCheck::values},
      {"baddbmm_out", of_bmm,
       [](A a) {
         return written(a[0], [&](auto& out) { at::baddbmm_out(out, a[0], a[1], a[2]); });
       },
       OpCheck::values},
      {"bmm_out", of_bmm,
       [](A a) { return written(a[0], [&](auto& out) { at::bmm_out(out, a[1], a[2]); }); },
       OpCheck::values},
      {"cat_out", of_mm,
       [](A a) {
         return written(a[0].repeat({2, 1}), [&](auto& out) { at::cat_out(out, {a[0], a[0]}); });
       },
       OpCheck::values},
      {"cumsum_out", of_mm,
       [](A a) { return written(a[0], [&](auto& out) { at::cumsum_out(out, a[0], 1); }); },
       OpCheck::values},
      {"div_out", two_positive,
       [](A a) {
         return written((a[0] + a[1]).to(at::kDouble),
                        [&](auto& out) { at::div_out(out, a[0], a[1]); });
       },
       OpCheck::values},
      {"empty_out", of_mm,
       [](A a) {
         return written(a[0].new_empty({0}), [&](auto& out) { at::mm_out(out, a[1], a[2]); });
       },
       OpCheck::values},
      {"exp_out", one,
       [](A a) { return written(a[0], [&](auto& out) { at::exp_out(out, a[0]); }); },
       OpCheck::values},
      {"index_select_out", of_list,
       [](A a) {
         return written(a[2], [&](auto& out) { at::index_select_out(out, a[0], 0, a[1]); });
       },
       OpCheck::values},
      {"mean_out", of_mm,
       [](A a) {
         return written(a[0].select(0, 0), [&](auto& out) { at::mean_out(out, a[0], 0); });
       },
       OpCheck::values},
      {"mm_out", of_mm,
       [](A a) { return written(a[0], [&](auto& out) { at::mm_out(out, a[1], a[2]); }); },
       OpCheck::values},
      {"mul_out", two,
       [](A a) {
         return written(a[0].to(at::kDouble), [&](auto& out) { at::mul_out(out, a[0], a[1]); });
       },
       OpCheck::values},
      {"norm_out", of_mm,
       [](A a) {
         return written(a[0].select(0, 0),
                        [&](auto& out) { at::linalg_vector_norm_out(out, a[0], 2, 0); });
       },
       OpCheck::values},
      {"softmax_out", of_mm,
       [](A a) { return written(a[0], [&](auto& out) { at::softmax_out(out, a[0], 1); }); },
       OpCheck::values},
      {"sort_out", of_mm,
       [](A a) {
         const at::NoGradGuard no_history;
         auto sorted = a[0].detach().clone();
         auto places = at::zeros_like(sorted, at::kLong);
         at::sort_out(sorted, places, a[0], 1);
         return R{sorted, places};
       },
       OpCheck::values},
      {"stack_out", of_mm,
       [](A a) {
         return written(a[0].unsqueeze(0).repeat({2, 1, 1}), [&](auto& out) {
           at::stack_out(out, {a[0], a[0]});
         });
       },
       OpCheck::values},
      {"sub_out", two,
       [](A a) {
         return written(a[0].to(at::kDouble), [&](auto& out) { at::sub_out(out, a[0], a[1]); });
       },
       OpCheck::values},
      {"sum_out", of_mm,
       [](A a) {
         return written(a[0].select(0, 0), [&](auto& out) { at::sum_out(out, a[0], 0); });
       },
       OpCheck::values},
      {"where_out", mask_and_two,
       [](A a) {
         return written(a[1] + a[2], [&](auto& out) { at::where_out(out, a[0], a[1], a[2]); });
       },
       OpCheck::values},
  };
  return table;
}

OpArguments of_rows(Random& random) {
  const auto rows = full_size(random) + 1, columns = full_size(random) + 1;
  return {{doubles(random, {rows, columns}), doubles(random, {columns})},
          {random.between(0, rows - 1), random.between(0, columns - 1)}};
}

/// Writes to a view and returns what it views.
template <typename Write>
R viewed(A a, const Write& write) {
  auto x = copied(a);
  write(x);
  return {x, x * 2};
}

const std::vector<OpEntry>& view_writes() {
  constexpr auto kCheck = OpCheck::all;
  static const std::vector<OpEntry> table = {
      {"chain", of_rows,
       [](A a) {
         return viewed(a, [&](auto& x) { x.t().slice(1, 1).mul_(2).select(0, 0).add_(1); });
       },
       kCheck},
      {"column", of_rows,
       [](A a) { return viewed(a, [&](auto& x) { x.select(1, a.number(1)).fill_(2); }); }, kCheck},
      {"detached", of_rows,
       [](A a) {
         const at::NoGradGuard no_history;
         return viewed(a, [&](auto& x) { x.detach().add_(1); });
       },
       kCheck},
      {"diagonal", of_rows, [](A a) { return viewed(a, [&](auto& x) { x.diagonal().zero_(); }); },
       kCheck},
      {"expand_as_row", of_rows,
       [](A a) { return viewed(a, [&](auto& x) { x.copy_(a[1].expand_as(x)); }); }, kCheck},
      {"fill_diagonal", of_rows,
       [](A a) {
         const at::NoGradGuard no_history;
         return viewed(a, [&](auto& x) { x.fill_diagonal_(3); });
       },
       kCheck},
      {"flat", of_rows, [](A a) { return viewed(a, [&](auto& x) { x.view({-1}).add_(1); }); },
       kCheck},
      {"index_of_view", of_rows,
       [](A a) {
         return viewed(a, [&](auto& x) { x.t().slice(0, 0, 1).copy_(x.t().slice(0, 1, 2)); });
       },
       kCheck},
      {"narrow", of_rows,
       [](A a) { return viewed(a, [&](auto& x) { x.narrow(0, a.number(0), 1).mul_(4); }); },
       kCheck},
      {"row", of_rows,
       [](A a) { return viewed(a, [&](auto& x) { x.select(0, a.number(0)).copy_(a[1]); }); },
       kCheck},
      {"row_added", of_rows,
       [](A a) { return viewed(a, [&](auto& x) { x.select(0, a.number(0)).add_(a[1]); }); },
       kCheck},
      {"row_by_index", of_rows,
       [](A a) { return viewed(a, [&](auto& x) { x[a.number(0)] = a[1] * 2; }); }, kCheck},
      {"slice", of_rows, [](A a) { return viewed(a, [&](auto& x) { x.slice(0, 1).mul_(2); }); },
       kCheck},
      {"slice_copied", of_rows,
       [](A a) { return viewed(a, [&](auto& x) { x.slice(1, 1).copy_(x.slice(1, 0, -1) * 1); }); },
       kCheck},
      {"squeezed", of_rows,
       [](A a) { return viewed(a, [&](auto& x) { x.unsqueeze(0).squeeze(0).mul_(2); }); }, kCheck},
      {"transposed", of_rows, [](A a) { return viewed(a, [&](auto& x) { x.t().mul_(2); }); },
       kCheck},
      {"view_seen_after_write", of_rows,
       [](A a) {
         auto x = copied(a);
         const auto row = x.select(0, a.number(0));
         x.mul_(2);
         return R{row * 1, x};
       },
       kCheck},
  };
  return table;
}

TEST(OpSweepTest, InPlace) { check_family("in_place", in_place(), 40); }
TEST(OpSweepTest, Out) { check_family("out", outs(), 30); }
TEST(OpSweepTest, WritesThroughViews) { check_family("view_write", view_writes(), 50); }

}  // namespace
}  // namespace tessera::test
