#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/op_arguments.h"
#include "tensor/op_tables.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;

std::size_t wrapped(std::int64_t dim, const Shape& shape) {
  return static_cast<std::size_t>(dim < 0 ? dim + std::ssize(shape) : dim);
}

/// self, index, source; numbers: dim. The index may be smaller than self in other dims.
OpArguments of_gather(Random& random) {
  const Shape shape = full_shape(random, 1, 3);
  const auto dim = any_dim(random, std::ssize(shape));
  Shape index = shape;
  const auto at = wrapped(dim, shape);
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (i != at && random.one_in(4)) index[i] = random.between(1, shape[i]);
  }
  index[at] = any_size(random);
  return {
      {doubles(random, shape), integers(random, index, 0, shape[at] - 1), doubles(random, index)},
      {dim}};
}

/// The same with indices that do not repeat along the dim.
OpArguments of_scatter(Random& random) {
  auto made = of_gather(random);
  const Shape shape = made[0].sizes().vec();
  const auto at = static_cast<std::int64_t>(wrapped(made.number(0), shape));
  const auto count = std::min(made[1].size(at), shape[static_cast<std::size_t>(at)]);
  const auto order = doubles(random, shape).argsort(at).slice(at, 0, count);
  at::Tensor index = order;
  for (std::int64_t i = 0; i < index.dim(); ++i) {
    if (i != at) index = index.slice(i, 0, made[1].size(i));
  }
  made.tensors[1] = index.contiguous();
  made.tensors[2] = doubles(random, index.sizes().vec());
  return made;
}

/// self, a list of indices, a source with as many slices; numbers: dim.
OpArguments of_list(Random& random) {
  const Shape shape = full_shape(random, 1, 3);
  const auto dim = any_dim(random, std::ssize(shape));
  const auto at = wrapped(dim, shape);
  const auto count = any_size(random);
  Shape source = shape;
  source[at] = count;
  return {{doubles(random, shape), integers(random, {count}, 0, shape[at] - 1),
           doubles(random, source)},
          {dim}};
}

/// The same with a list that does not repeat.
OpArguments of_distinct_list(Random& random) {
  auto made = of_list(random);
  const Shape shape = made[0].sizes().vec();
  const auto at = wrapped(made.number(0), shape);
  const auto count = random.between(0, shape[at]);
  made.tensors[1] = doubles(random, {shape[at]}).argsort().slice(0, 0, count).contiguous();
  Shape source = shape;
  source[at] = count;
  made.tensors[2] = doubles(random, source);
  return made;
}

/// self of two dims or more, two indices of the same shape for its first dims, one for any, and
/// values for the pairs.
OpArguments of_index(Random& random) {
  const Shape shape = full_shape(random, 2, 4);
  const Shape index = any_shape(random, 0, 2);
  Shape values_shape = index;
  values_shape.insert(values_shape.end(), shape.begin() + 2, shape.end());
  return {{doubles(random, shape), integers(random, index, -shape[0], shape[0] - 1),
           integers(random, index, -shape[1], shape[1] - 1), doubles(random, values_shape)},
          {}};
}

OpArguments of_mask(Random& random) {
  const Shape shape = full_shape(random, 1, 3);
  return {{doubles(random, shape), booleans(random, shape), doubles(random, shape)}};
}

OpArguments of_row_mask(Random& random) {
  const Shape shape = full_shape(random, 1, 3);
  return {{doubles(random, shape), booleans(random, {shape[0]})}};
}

OpArguments of_take(Random& random) {
  const auto self = doubles(random, full_shape(random, 1, 3));
  const Shape index = any_shape(random, 0, 2);
  return {{self, integers(random, index, 0, self.numel() - 1), doubles(random, index)}};
}

/// Indices of the rows that a mask leaves, or a random one.
OpArguments of_unsafe(Random& random) {
  const Shape shape = full_shape(random, 2, 3);
  const Shape index = full_shape(random, 1, 2);
  Shape values_shape = index;
  values_shape.insert(values_shape.end(), shape.begin() + 1, shape.end());
  return {{doubles(random, shape), integers(random, index, 0, shape[0] - 1),
           booleans(random, index), doubles(random, values_shape)}};
}

c10::List<std::optional<at::Tensor>> places(std::vector<at::Tensor> tensors) {
  c10::List<std::optional<at::Tensor>> list;
  for (auto& tensor : tensors) {
    list.push_back(tensor.defined() ? std::optional(std::move(tensor)) : std::nullopt);
  }
  return list;
}

const std::vector<OpEntry>& indexing() {
  static const std::vector<OpEntry> table = {
      {"gather", of_gather, [](A a) { return R{a[0].gather(a.number(0), a[1])}; }},
      {"index_add", of_list, [](A a) { return R{a[0].index_add(a.number(0), a[1], a[2], 2)}; }},
      {"index_after", of_index,
       [](A a) {
         return R{at::index(a[0], places({{}, a[2]}))};
       }},
      {"index_copy", of_distinct_list,
       [](A a) { return R{a[0].index_copy(a.number(0), a[1], a[2])}; }},
      {"index_fill", of_list, [](A a) { return R{a[0].index_fill(a.number(0), a[1], 3)}; }},
      {"index_first", of_index, [](A a) { return R{at::index(a[0], places({a[1]}))}; }},
      {"index_mask", of_mask, [](A a) { return R{at::index(a[0], places({a[1]}))}; }},
      {"index_pairs", of_index,
       [](A a) {
         return R{at::index(a[0], places({a[1], a[2]}))};
       }},
      {"index_apart", of_index,
       [](A a) {
         const auto self = a[0].unsqueeze(1);
         return R{at::index(self, places({a[1], {}, a[2]}))};
       }},
      {"index_broadcast", of_index,
       [](A a) {
         return R{at::index(a[0], places({a[1].unsqueeze(-1), a[2].unsqueeze(0)}))};
       }},
      {"index_put_accumulate", of_index,
       [](A a) {
         return R{at::index_put(a[0], places({a[1], a[2]}), a[3], true)};
       }},
      {"index_put_mask", of_mask,
       [](A a) { return R{at::index_put(a[0], places({a[1]}), torch::tensor(2.5, at::kDouble))}; }},
      {"index_put_number", of_index,
       [](A a) {
         return R{at::index_put(a[0], places({a[1], a[2]}), torch::tensor(2.5, at::kDouble))};
       }},
      {"index_put_rows", of_list,
       [](A a) {
         const auto rows = a[0].movedim(a.number(0), 0);
         return R{at::index_put(rows, places({a[1]}), a[2].movedim(a.number(0), 0), true)};
       }},
      {"index_reduce", of_list,
       [](A a) { return R{at::index_reduce(a[0], a.number(0), a[1], a[2], "amax")}; },
       OpCheck::values},
      {"index_rows_by_mask", of_row_mask, [](A a) { return R{at::index(a[0], places({a[1]}))}; }},
      {"index_select", of_list, [](A a) { return R{a[0].index_select(a.number(0), a[1])}; }},
      {"masked_scatter", of_mask, [](A a) { return R{a[0].masked_scatter(a[1], a[2])}; }},
      {"masked_select", of_mask, [](A a) { return R{a[0].masked_select(a[1])}; }},
      {"nonzero", one_integer, [](A a) { return R{a[0].nonzero()}; }},
      {"put", of_take, [](A a) { return R{a[0].put(a[1], a[2], true)}; }},
      {"scatter", of_scatter, [](A a) { return R{a[0].scatter(a.number(0), a[1], a[2])}; }},
      {"scatter_add", of_gather, [](A a) { return R{a[0].scatter_add(a.number(0), a[1], a[2])}; }},
      {"scatter_number", of_gather, [](A a) { return R{a[0].scatter(a.number(0), a[1], 3)}; }},
      {"scatter_reduce_amax", of_gather,
       [](A a) { return R{a[0].scatter_reduce(a.number(0), a[1], a[2], "amax")}; }},
      {"scatter_reduce_mean", of_gather,
       [](A a) { return R{a[0].scatter_reduce(a.number(0), a[1], a[2], "mean")}; }},
      {"scatter_reduce_sum", of_gather,
       [](A a) { return R{a[0].scatter_reduce(a.number(0), a[1], a[2], "sum", false)}; }},
      {"take", of_take, [](A a) { return R{a[0].take(a[1])}; }},
      {"take_along_dim", of_gather,
       [](A a) {
         return R{at::take_along_dim(a[0], a[1].slice(0, 0, 1).expand_as(a[1].slice(0, 0, 1)),
                                     a.number(0))};
       }},
      {"unsafe_index", of_unsafe, [](A a) { return R{at::_unsafe_index(a[0], places({a[1]}))}; }},
      {"unsafe_masked_index", of_unsafe,
       [](A a) {
         const auto mask = a[2].reshape(a[1].sizes());
         return R{
             at::_unsafe_masked_index(a[0].select(-1, 0).reshape({a[0].size(0), -1}).select(1, 0),
                                      mask, places({a[1]}), 1.5)};
       }},
      {"unsafe_masked_index_put", of_unsafe,
       [](A a) {
         const auto self = a[0].reshape({a[0].size(0), -1}).select(1, 0);
         return R{at::_unsafe_masked_index_put_accumulate(
             self, a[2], places({a[1]}),
             a[3].reshape({a[1].numel(), -1}).select(1, 0).reshape(a[1].sizes()))};
       }},
  };
  return table;
}

OpArguments of_embedding(Random& random) {
  const auto rows = full_size(random) + 1;
  return {{doubles(random, {rows, full_size(random)}),
           integers(random, any_shape(random, 0, 3), 0, rows - 1)},
          {random.between(0, rows - 1)}};
}

OpArguments of_bags(Random& random) {
  const auto rows = full_size(random) + 1;
  return {{doubles(random, {rows, full_size(random)}),
           integers(random, full_shape(random, 2, 2), 0, rows - 1)},
          {random.between(0, 1)}};
}

OpArguments of_class_numbers(Random& random) {
  return {{integers(random, any_shape(random, 0, 3), 0, 4)}};
}

const std::vector<OpEntry>& embeddings() {
  static const std::vector<OpEntry> table = {
      {"embedding", of_embedding, [](A a) { return R{at::embedding(a[0], a[1])}; }},
      {"embedding_bag", of_bags,
       [](A a) {
         const at::Tensor offsets =
             at::cumsum(at::full_like(a[1].select(1, 0), a[1].size(1)), 0) - a[1].size(1);
         return R{
             std::get<0>(at::embedding_bag(a[0], a[1].reshape({-1}), offsets, false, a.number(0)))};
       }},
      {"embedding_by_frequency", of_embedding,
       [](A a) { return R{at::embedding(a[0], a[1], -1, true)}; }},
      {"embedding_padding", of_embedding,
       [](A a) { return R{at::embedding(a[0], a[1], a.number(0))}; }},
      {"one_hot", of_class_numbers, [](A a) { return R{at::one_hot(a[0], 5)}; }},
      {"one_hot_times", of_embedding,
       [](A a) { return R{at::matmul(at::one_hot(a[1], a[0].size(0)).to(at::kDouble), a[0])}; }},
      {"tied", of_embedding, [](A a) { return R{at::linear(at::embedding(a[0], a[1]), a[0])}; }},
  };
  return table;
}

TEST(OpSweepTest, Indexing) { check_family("index", indexing(), 60); }
TEST(OpSweepTest, Embedding) { check_family("embedding", embeddings(), 80); }

}  // namespace

const std::vector<OpEntry>& index_table() { return indexing(); }
const std::vector<OpEntry>& embedding_table() { return embeddings(); }

}  // namespace tessera::test
