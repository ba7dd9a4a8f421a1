#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/op_arguments.h"
#include "tensor/op_tables.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;

/// A tensor, and other sizes for as many elements: merged and split dims.
OpArguments reshaped(Random& random) {
  const Shape shape = any_shape(random);
  std::vector<std::int64_t> sizes;
  std::int64_t merged = 1;
  for (const auto size : shape) {
    if (random.one_in(2)) {
      merged *= size;
      continue;
    }
    sizes.push_back(merged * size);
    merged = 1;
  }
  if (merged != 1) sizes.push_back(merged);
  std::vector<std::int64_t> split;
  for (const auto size : sizes) {
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= size; ++d) {
      if (size % d == 0) divisors.push_back(d);
    }
    if (divisors.empty() || !random.one_in(2)) {
      split.push_back(size);
      continue;
    }
    const auto outer = random.pick(divisors);
    split.push_back(outer);
    split.push_back(size / outer);
  }
  return {{values(random, shape)}, std::move(split)};
}

OpArguments permuted(Random& random) {
  auto tensor = values(random, any_shape(random));
  std::vector<std::int64_t> order(static_cast<std::size_t>(tensor.dim()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  random.shuffle(order);
  return {{std::move(tensor)}, std::move(order)};
}

OpArguments two_dims(Random& random) {
  auto tensor = values(random, any_shape(random, 1));
  const auto a = any_dim(random, tensor.dim());
  return {{tensor}, {a, any_dim(random, tensor.dim())}};
}

OpArguments matrix(Random& random) {
  return {{values(random, any_shape(random, 2))}, {random.between(-3, 3)}};
}

OpArguments flat_matrix(Random& random) {
  return {{values(random, any_shape(random, 2, 2))}, {random.between(-3, 3)}};
}

OpArguments expanded(Random& random) {
  const Shape to = any_shape(random);
  OpArguments made{{values(random, broadcastable(random, to))}, to};
  return made;
}

OpArguments indexed(Random& random) {
  auto made = one_full_dim(random);
  if (made[0].dim() == 0) return {{made[0].reshape({1})}, {0, 0}};
  const auto size = made[0].size(made.number(0));
  made.numbers.push_back(random.between(-size, size - 1));
  return made;
}

/// dim, start, end, step
OpArguments sliced(Random& random) {
  auto made = one_dim(random);
  if (made[0].dim() == 0) return {{made[0].reshape({1})}, {0, 0, 1, 1}};
  const auto size = made[0].size(made.number(0));
  made.numbers.push_back(random.between(-size, size));
  made.numbers.push_back(random.between(-size, size + 1));
  made.numbers.push_back(random.between(1, 3));
  return made;
}

/// dim, start, length
OpArguments narrowed(Random& random) {
  auto made = one_dim(random);
  if (made[0].dim() == 0) return {{made[0].reshape({1})}, {0, 0, 1}};
  const auto size = made[0].size(made.number(0));
  const auto start = random.between(0, size);
  made.numbers.push_back(start);
  made.numbers.push_back(random.between(0, size - start));
  return made;
}

OpArguments split_evenly(Random& random) {
  auto made = one_full_dim(random);
  if (made[0].dim() == 0) made = {{made[0].reshape({1})}, {0}};
  made.numbers.push_back(random.between(1, 4));
  return made;
}

/// dim, then sizes
OpArguments split_into_sizes(Random& random) {
  auto made = one_dim(random);
  if (made[0].dim() == 0) made = {{made[0].reshape({1})}, {0}};
  auto rest = made[0].size(made.number(0));
  do {
    const auto part = random.between(0, rest);
    made.numbers.push_back(part);
    rest -= part;
  } while (rest > 0);
  return made;
}

/// dim, size, step
OpArguments windows(Random& random) {
  auto made = one_full_dim(random);
  if (made[0].dim() == 0) return {{made[0].reshape({1})}, {0, 1, 1}};
  const auto size = random.between(1, made[0].size(made.number(0)));
  made.numbers.push_back(size);
  made.numbers.push_back(random.between(1, 3));
  return made;
}

OpArguments strided(Random& random) {
  const auto rows = full_size(random) + 1, columns = full_size(random) + 1;
  return {{values(random, {rows, columns})},
          {random.between(1, rows - 1), random.between(1, columns - 1), random.between(0, 1)}};
}

OpArguments repeated(Random& random) {
  auto tensor = values(random, any_shape(random, 0, 3));
  std::vector<std::int64_t> times;
  for (std::int64_t i = 0; i < tensor.dim() + random.between(0, 1); ++i) {
    times.push_back(random.one_in(8) ? 0 : random.between(1, 3));
  }
  return {{std::move(tensor)}, std::move(times)};
}

OpArguments flipped(Random& random) {
  auto made = some_dims(random);
  made.numbers.erase(made.numbers.begin());
  return made;
}

OpArguments rolled(Random& random) {
  auto made = one_dim(random);
  if (made[0].dim() == 0) made = {{made[0].reshape({1})}, {0}};
  made.numbers.push_back(random.between(-5, 5));
  return made;
}

OpArguments padded(Random& random) {
  auto tensor = values(random, full_shape(random, 2, 4));
  std::vector<std::int64_t> pad;
  for (std::int64_t i = 0; i < 2 * random.between(1, 2); ++i) pad.push_back(random.between(0, 2));
  if (random.one_in(4)) pad[0] = -1;
  return {{std::move(tensor)}, std::move(pad)};
}

/// Padding of the last dim of [n, c, s], less than its size.
OpArguments mirrored(Random& random) {
  auto tensor = values(random, {full_size(random), full_size(random), random.between(3, 6)});
  return {{std::move(tensor)}, {random.between(0, 2), random.between(0, 2)}};
}

OpArguments channels(Random& random) {
  const auto factor = random.between(1, 2);
  return {{values(random, {full_size(random), factor * factor * full_size(random),
                           full_size(random), full_size(random)})},
          {factor}};
}

OpArguments pairs(Random& random) {
  Shape shape = any_shape(random, 0, 3);
  shape.push_back(2);
  return {{doubles(random, shape)}};
}

const std::vector<OpEntry>& views() {
  static const std::vector<OpEntry> table = {
      {"as_strided", strided,
       [](A a) {
         return R{a[0].contiguous().as_strided({a.number(0), a.number(1)}, {a[0].size(1), 1},
                                               a.number(2))};
       }},
      {"as_strided_overlapping", strided,
       [](A a) {
         return R{a[0].contiguous().as_strided({a.number(0), 2}, {1, 1}, a.number(2))};
       }},
      {"broadcast_to", expanded, [](A a) { return R{a[0].broadcast_to(a.rest())}; }},
      {"channel_shuffle", channels, [](A a) { return R{at::channel_shuffle(a[0], a.number(0))}; }},
      {"chunk", split_evenly, [](A a) { return R{a[0].chunk(a.number(1), a.number(0))}; }},
      {"detach", one, [](A a) { return R{a[0].detach()}; }, OpCheck::values},
      {"diag", flat_matrix, [](A a) { return R{at::diag(a[0], a.number(0))}; }},
      {"diag_embed", matrix, [](A a) { return R{at::diag_embed(a[0], a.number(0))}; }},
      {"diagonal", matrix, [](A a) { return R{a[0].diagonal(a.number(0), 0, -1)}; }},
      {"expand", expanded, [](A a) { return R{a[0].expand(a.rest())}; }},
      {"expand_then_sum", expanded, [](A a) { return R{a[0].expand(a.rest()).mul(2).sum()}; }},
      {"flatten", one, [](A a) { return R{a[0].flatten()}; }},
      {"flip", flipped, [](A a) { return R{a[0].flip(a.rest())}; }},
      {"movedim", two_dims, [](A a) { return R{a[0].movedim(a.number(0), a.number(1))}; }},
      {"narrow", narrowed,
       [](A a) { return R{a[0].narrow(a.number(0), a.number(1), a.number(2))}; }},
      {"pad_circular", mirrored, [](A a) { return R{at::pad(a[0], a.rest(), "circular")}; }},
      {"pad_constant", padded, [](A a) { return R{at::constant_pad_nd(a[0], a.rest(), 1.5)}; }},
      {"pad_reflect", mirrored, [](A a) { return R{at::pad(a[0], a.rest(), "reflect")}; }},
      {"pad_replicate", mirrored, [](A a) { return R{at::pad(a[0], a.rest(), "replicate")}; }},
      {"permute", permuted, [](A a) { return R{a[0].permute(a.rest())}; }},
      {"permute_contiguous", permuted, [](A a) { return R{a[0].permute(a.rest()).contiguous()}; }},
      {"permute_reshape", permuted, [](A a) { return R{a[0].permute(a.rest()).reshape({-1})}; }},
      {"pixel_shuffle", channels, [](A a) { return R{at::pixel_shuffle(a[0], a.number(0))}; }},
      {"real_of_pairs", pairs,
       [](A a) { return R{at::view_as_real(at::view_as_complex(a[0].contiguous()) * 2)}; }},
      {"repeat", repeated, [](A a) { return R{a[0].repeat(a.rest())}; }},
      {"repeat_interleave", split_evenly,
       [](A a) { return R{a[0].repeat_interleave(a.number(1), a.number(0))}; }},
      {"reshape", reshaped, [](A a) { return R{a[0].reshape(a.rest())}; }},
      {"reshape_and_back", reshaped,
       [](A a) { return R{(a[0].reshape(a.rest()) * 2).reshape(a[0].sizes())}; }},
      {"roll", rolled, [](A a) { return R{a[0].roll(a.number(1), a.number(0))}; }},
      {"roll_flat", rolled, [](A a) { return R{a[0].roll(a.number(1))}; }},
      {"rot90", matrix,
       [](A a) {
         return R{a[0].rot90(a.number(0), {0, 1})};
       }},
      {"select", indexed, [](A a) { return R{a[0].select(a.number(0), a.number(1))}; }},
      {"slice", sliced,
       [](A a) { return R{a[0].slice(a.number(0), a.number(1), a.number(2), a.number(3))}; }},
      {"split", split_evenly, [](A a) { return R{a[0].split(a.number(1), a.number(0))}; }},
      {"split_with_sizes", split_into_sizes,
       [](A a) { return R{a[0].split_with_sizes(a.rest(1), a.number(0))}; }},
      {"squeeze", one, [](A a) { return R{a[0].squeeze()}; }},
      {"squeeze_dim", one_dim, [](A a) { return R{a[0].squeeze(a.number(0))}; }},
      {"swapaxes", two_dims, [](A a) { return R{a[0].swapaxes(a.number(0), a.number(1))}; }},
      {"t", flat_matrix, [](A a) { return R{a[0].t()}; }},
      {"tensor_split", split_evenly,
       [](A a) { return R{a[0].tensor_split(a.number(1), a.number(0))}; }},
      {"tensor_split_at", narrowed,
       [](A a) {
         return R{a[0].tensor_split({a.number(1), a.number(1) + a.number(2)}, a.number(0))};
       }},
      {"tile", repeated, [](A a) { return R{a[0].tile(a.rest())}; }},
      {"transpose", two_dims, [](A a) { return R{a[0].transpose(a.number(0), a.number(1))}; }},
      {"tril", matrix, [](A a) { return R{a[0].tril(a.number(0))}; }},
      {"triu", matrix, [](A a) { return R{a[0].triu(a.number(0))}; }},
      {"unbind", one_full_dim,
       [](A a) { return a[0].dim() == 0 ? R{a[0].clone()} : R{a[0].unbind(a.number(0))}; }},
      {"unfold", windows,
       [](A a) { return R{a[0].unfold(a.number(0), a.number(1), a.number(2))}; }},
      {"unsqueeze", one_dim, [](A a) { return R{a[0].unsqueeze(a.number(0))}; }},
      {"view", reshaped, [](A a) { return R{a[0].contiguous().view(a.rest())}; }},
  };
  return table;
}

OpArguments joined_along(Random& random) {
  Shape shape = any_shape(random, 1);
  const auto dim = any_dim(random, std::ssize(shape));
  const auto at = static_cast<std::size_t>(dim < 0 ? dim + std::ssize(shape) : dim);
  OpArguments made{{}, {dim}};
  for (std::int64_t i = 0; i < random.between(1, 4); ++i) {
    shape[at] = any_size(random);
    made.tensors.push_back(doubles(random, shape));
  }
  return made;
}

OpArguments stacked(Random& random) {
  const Shape shape = any_shape(random, 0, 3);
  OpArguments made{{}, {any_dim(random, std::ssize(shape) + 1)}};
  for (std::int64_t i = 0; i < random.between(1, 3); ++i) {
    made.tensors.push_back(doubles(random, shape));
  }
  return made;
}

OpArguments vectors(Random& random) {
  OpArguments made{{}};
  for (std::int64_t i = 0; i < random.between(1, 3); ++i) {
    made.tensors.push_back(doubles(random, {full_size(random)}));
  }
  return made;
}

const std::vector<OpEntry>& joins() {
  static const std::vector<OpEntry> table = {
      {"block_diag", vectors, [](A a) { return R{at::block_diag(a.tensors)}; }},
      {"broadcast_tensors", two_broadcast,
       [](A a) {
         return R{at::broadcast_tensors({a[0], a[1]})};
       }},
      {"cartesian_prod", vectors, [](A a) { return R{at::cartesian_prod(a.tensors)}; }},
      {"combinations", vectors,
       [](A a) {
         return R{at::combinations(a[0]), at::combinations(a[0], 3, true),
                  at::combinations(a[0], 0)};
       }},
      {"cat", joined_along, [](A a) { return R{at::cat(a.tensors, a.number(0))}; }},
      {"cat_mixed", joined_along,
       [](A a) {
         auto tensors = a.tensors;
         tensors.push_back(tensors[0].to(at::kFloat));
         return R{at::cat(tensors, a.number(0))};
       }},
      {"cat_with_nothing", joined_along,
       [](A a) {
         auto tensors = a.tensors;
         tensors.push_back(tensors[0].new_empty({0}));
         return R{at::cat(tensors, a.number(0))};
       }},
      {"column_stack", stacked, [](A a) { return R{at::column_stack(a.tensors)}; }},
      {"dstack", stacked, [](A a) { return R{at::dstack(a.tensors)}; }},
      {"hstack", stacked, [](A a) { return R{at::hstack(a.tensors)}; }},
      {"meshgrid", vectors, [](A a) { return R{at::meshgrid(a.tensors, "ij")}; }},
      {"split_and_cat", stacked,
       [](A a) { return R{at::cat(at::stack(a.tensors, a.number(0)).split(2, a.number(0)), 0)}; }},
      {"stack", stacked, [](A a) { return R{at::stack(a.tensors, a.number(0))}; }},
      {"vstack", stacked, [](A a) { return R{at::vstack(a.tensors)}; }},
  };
  return table;
}

OpArguments scattered_slice(Random& random) {
  auto made = narrowed(random);
  Shape shape = made[0].sizes().vec();
  const auto dim = made.number(0);
  shape[static_cast<std::size_t>(dim < 0 ? dim + std::ssize(shape) : dim)] = made.number(2);
  made.tensors = {doubles(random, made[0].sizes().vec()), doubles(random, shape)};
  return made;
}

OpArguments scattered_index(Random& random) {
  auto made = indexed(random);
  Shape shape = made[0].sizes().vec();
  const auto dim = made.number(0);
  shape.erase(shape.begin() + (dim < 0 ? dim + std::ssize(shape) : dim));
  made.tensors = {doubles(random, made[0].sizes().vec()), doubles(random, shape)};
  return made;
}

OpArguments scattered_diagonal(Random& random) {
  const auto rows = full_size(random), columns = full_size(random);
  return {{doubles(random, {rows, columns}), doubles(random, {std::min(rows, columns)})}};
}

OpArguments scattered_strided(Random& random) {
  auto made = strided(random);
  const Shape shape = {made.number(0), made.number(1)};
  made.tensors = {doubles(random, made[0].sizes().vec()), doubles(random, shape)};
  return made;
}

const std::vector<OpEntry>& scattered_views() {
  static const std::vector<OpEntry> table = {
      {"as_strided_scatter", scattered_strided,
       [](A a) {
         return R{at::as_strided_scatter(a[0].contiguous(), a[1], {a.number(0), a.number(1)},
                                         {a[0].size(1), 1}, a.number(2))};
       }},
      {"diagonal_scatter", scattered_diagonal,
       [](A a) { return R{at::diagonal_scatter(a[0], a[1])}; }},
      {"select_scatter", scattered_index,
       [](A a) { return R{at::select_scatter(a[0], a[1], a.number(0), a.number(1))}; }},
      {"slice_scatter", scattered_slice,
       [](A a) {
         return R{
             at::slice_scatter(a[0], a[1], a.number(0), a.number(1), a.number(1) + a.number(2))};
       }},
  };
  return table;
}

/// Views that are copies: `self` must not change with them.
R changed(A a, const at::Tensor& copy) {
  const auto before = a[0].clone();
  const auto written = copy.add(0);
  if (!copy.requires_grad()) copy.add_(1);
  return {written, a[0] - before, a[0] * 1};
}

const std::vector<OpEntry>& view_copies() {
  static const std::vector<OpEntry> table = {
      {"alias_copy", one, [](A a) { return changed(a, at::alias_copy(a[0])); }},
      {"as_strided_copy", strided,
       [](A a) {
         return R{at::as_strided_copy(a[0].contiguous(), {a.number(0), a.number(1)},
                                      {a[0].size(1), 1}, a.number(2))};
       }},
      {"as_strided_copy_overlapping", strided,
       [](A a) {
         const auto whole = a[0].contiguous();
         return R{at::as_strided_copy(whole, whole.sizes(), {1, 0}, 0)};
       }},
      {"diagonal_copy", matrix, [](A a) { return R{at::diagonal_copy(a[0], a.number(0))}; }},
      {"expand_copy", expanded, [](A a) { return R{at::expand_copy(a[0], a.rest())}; }},
      {"narrow_copy", narrowed,
       [](A a) { return R{at::narrow_copy(a[0], a.number(0), a.number(1), a.number(2))}; },
       OpCheck::values},
      {"permute_copy", permuted, [](A a) { return changed(a, at::permute_copy(a[0], a.rest())); }},
      {"select_copy", indexed,
       [](A a) { return R{at::select_copy(a[0], a.number(0), a.number(1))}; }},
      {"slice_copy", sliced,
       [](A a) {
         return R{at::slice_copy(a[0], a.number(0), a.number(1), a.number(2), a.number(3))};
       }},
      {"split_copy", split_evenly,
       [](A a) { return R{at::split_copy(a[0], a.number(1), a.number(0))}; }},
      {"split_with_sizes_copy", split_into_sizes,
       [](A a) { return R{at::split_with_sizes_copy(a[0], a.rest(1), a.number(0))}; }},
      {"squeeze_copy", one, [](A a) { return changed(a, at::squeeze_copy(a[0])); }},
      {"t_copy", flat_matrix, [](A a) { return R{at::t_copy(a[0])}; }},
      {"transpose_copy", two_dims,
       [](A a) { return R{at::transpose_copy(a[0], a.number(0), a.number(1))}; }},
      {"unbind_copy", split_evenly, [](A a) { return R{at::unbind_copy(a[0], a.number(0))}; }},
      {"unfold_copy", windows,
       [](A a) { return R{at::unfold_copy(a[0], a.number(0), a.number(1), a.number(2))}; }},
      {"unsqueeze_copy", one_dim,
       [](A a) { return changed(a, at::unsqueeze_copy(a[0], a.number(0))); }},
      {"view_copy", reshaped,
       [](A a) { return changed(a, at::view_copy(a[0].contiguous(), a.rest())); }},
      {"view_copy_written", reshaped,
       [](A a) { return changed(a, at::view_copy(a[0].contiguous(), a.rest())); }, OpCheck::values},
      {"squeeze_copy_written", one, [](A a) { return changed(a, at::squeeze_copy(a[0])); },
       OpCheck::values},
  };
  return table;
}

TEST(OpSweepTest, ViewCopies) { check_family("view_copy", view_copies(), 30); }
TEST(OpSweepTest, Views) { check_family("view", views(), 40); }
TEST(OpSweepTest, Joins) { check_family("join", joins(), 40); }
TEST(OpSweepTest, ScatteredViews) { check_family("scattered_view", scattered_views(), 50); }

}  // namespace

const std::vector<OpEntry>& view_table() { return views(); }
const std::vector<OpEntry>& join_table() { return joins(); }

}  // namespace tessera::test
