#include "tensor/op_arguments.h"

#include <algorithm>

#include <torch/torch.h>

namespace tessera::test {
namespace {

at::ScalarType any_float(Random& random) { return random.one_in(8) ? at::kFloat : at::kDouble; }

/// Evenly distributed in (-1, 1), from the seed alone.
at::Tensor spread(Random& random, const Shape& shape, at::ScalarType dtype) {
  const at::Tensor result = torch::empty(shape, at::kDouble);
  auto* next = result.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    *next++ = static_cast<double>(random.between(-999'999, 999'999)) * 1e-6;
  }
  return result.to(dtype);
}

OpArguments with_dim(Random& random, at::Tensor tensor) {
  const std::int64_t dim = any_dim(random, tensor.dim());
  return {{std::move(tensor)}, {dim}};
}

OpArguments with_dims(Random& random, at::Tensor tensor) {
  std::vector<std::int64_t> numbers = {random.between(0, 1)};
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (random.one_in(2)) numbers.push_back(random.one_in(4) ? dim - tensor.dim() : dim);
  }
  if (numbers.size() == 1 && tensor.dim() > 0) numbers.push_back(any_dim(random, tensor.dim()));
  return {{std::move(tensor)}, std::move(numbers)};
}

}  // namespace

at::Tensor values(Random& random, const Shape& shape) {
  return spread(random, shape, any_float(random)) * 2;
}

at::Tensor positive_values(Random& random, const Shape& shape) {
  return spread(random, shape, any_float(random)) + 1.1;
}

at::Tensor unit_values(Random& random, const Shape& shape) {
  return spread(random, shape, any_float(random)) * 0.45 + 0.5;
}

at::Tensor integers(Random& random, const Shape& shape, std::int64_t low, std::int64_t high) {
  const at::Tensor result = torch::empty(shape, at::kLong);
  auto* next = result.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < result.numel(); ++i) *next++ = random.between(low, high);
  return result;
}

at::Tensor booleans(Random& random, const Shape& shape) {
  return integers(random, shape, 0, 1).to(at::kBool);
}

at::Tensor doubles(Random& random, const Shape& shape) {
  return spread(random, shape, at::kDouble) * 2;
}

std::int64_t full_size(Random& random) { return random.between(1, random.one_in(4) ? 9 : 6); }

std::int64_t any_size(Random& random) { return random.one_in(16) ? 0 : full_size(random); }

Shape full_shape(Random& random, std::int64_t least, std::int64_t most) {
  Shape shape(static_cast<std::size_t>(random.between(least, most)));
  for (auto& size : shape) size = shape.size() > 3 ? random.between(1, 5) : full_size(random);
  return shape;
}

Shape any_shape(Random& random, std::int64_t least, std::int64_t most) {
  Shape shape = full_shape(random, least, most);
  if (!shape.empty() && random.one_in(12)) {
    shape[static_cast<std::size_t>(random.between(0, std::ssize(shape) - 1))] = 0;
  }
  return shape;
}

std::int64_t any_dim(Random& random, std::int64_t ndim) {
  if (ndim == 0) return random.between(-1, 0);
  return random.between(-ndim, ndim - 1);
}

Shape broadcastable(Random& random, const Shape& shape) {
  Shape other = shape;
  for (auto& size : other) {
    if (random.one_in(4)) size = 1;
  }
  const auto drop = random.one_in(3) ? random.between(0, std::ssize(shape)) : 0;
  other.erase(other.begin(), other.begin() + drop);
  return other;
}

OpArguments one(Random& random) { return {{values(random, any_shape(random))}}; }
OpArguments one_positive(Random& random) { return {{positive_values(random, any_shape(random))}}; }
OpArguments one_unit(Random& random) { return {{unit_values(random, any_shape(random))}}; }
OpArguments one_integer(Random& random) { return {{integers(random, any_shape(random), -9, 9)}}; }
OpArguments one_bool(Random& random) { return {{booleans(random, any_shape(random))}}; }
OpArguments one_full(Random& random) { return {{values(random, full_shape(random))}}; }

OpArguments two(Random& random) {
  const Shape shape = any_shape(random);
  return {{values(random, shape), values(random, shape)}};
}

OpArguments three(Random& random) {
  const Shape shape = any_shape(random);
  return {{doubles(random, shape), doubles(random, shape), doubles(random, shape)}};
}

OpArguments two_integers(Random& random) {
  const Shape shape = any_shape(random);
  return {{integers(random, shape, -9, 9), integers(random, shape, 1, 9)}};
}

OpArguments two_broadcast(Random& random) {
  const Shape shape = any_shape(random);
  OpArguments made{{values(random, shape), values(random, broadcastable(random, shape))}};
  if (random.one_in(2)) std::swap(made.tensors[0], made.tensors[1]);
  return made;
}

OpArguments two_positive(Random& random) {
  const Shape shape = any_shape(random);
  OpArguments made{
      {positive_values(random, shape), positive_values(random, broadcastable(random, shape))}};
  if (random.one_in(2)) std::swap(made.tensors[0], made.tensors[1]);
  return made;
}

OpArguments three_broadcast(Random& random) {
  const Shape shape = any_shape(random);
  OpArguments made{{doubles(random, shape), doubles(random, broadcastable(random, shape)),
                    spread(random, broadcastable(random, shape), at::kDouble) + 1.5}};
  return made;
}

OpArguments two_integers_broadcast(Random& random) {
  const Shape shape = any_shape(random);
  return {{integers(random, shape, -9, 9), integers(random, broadcastable(random, shape), 1, 9)}};
}

OpArguments mask_and_two(Random& random) {
  const Shape shape = any_shape(random);
  return {{booleans(random, broadcastable(random, shape)), doubles(random, shape),
           doubles(random, broadcastable(random, shape))}};
}

OpArguments one_and_mask(Random& random) {
  const Shape shape = any_shape(random);
  return {{values(random, shape), booleans(random, broadcastable(random, shape))}};
}

OpArguments one_and_smaller(Random& random) {
  const Shape shape = any_shape(random);
  return {{doubles(random, shape), values(random, broadcastable(random, shape))}};
}

OpArguments one_and_two_smaller(Random& random) {
  const Shape shape = any_shape(random);
  return {{doubles(random, shape), doubles(random, broadcastable(random, shape)),
           spread(random, broadcastable(random, shape), at::kDouble) + 1.5}};
}

OpArguments one_dim(Random& random) {
  return with_dim(random, values(random, any_shape(random, random.one_in(12) ? 0 : 1)));
}
OpArguments one_full_dim(Random& random) {
  return with_dim(random, values(random, full_shape(random, random.one_in(12) ? 0 : 1)));
}
OpArguments some_dims(Random& random) {
  return with_dims(random, values(random, any_shape(random)));
}
OpArguments some_full_dims(Random& random) {
  return with_dims(random, values(random, full_shape(random)));
}

}  // namespace tessera::test
