#pragma once

#include <functional>

#include <torch/csrc/autograd/autograd.h>

#include "comm/collectives_inputs.h"

// Gradients and gradients of gradients, against the same computation over all ranks' inputs on one.

namespace tessera::test {

/// What a rank's collective gives, from its input.
using Distributed = std::function<at::Tensor(const at::Tensor&, const Group&)>;
/// What it gives on all ranks, from all inputs.
using Plain = std::function<Tensors(const Tensors&)>;

/// Inputs of a rank, as plain numbers.
using Input = std::function<at::Tensor(std::int64_t rank)>;

/// Numbers without order, and without equal ones.
inline at::Tensor numbers(at::IntArrayRef shape, std::int64_t seed,
                          at::ScalarType type = at::kDouble) {
  const at::Tensor counter =
      at::arange(c10::multiply_integers(shape), at::kDouble).view(shape) + 0.37 * double(seed + 1);
  const at::Tensor real = at::sin(counter * 12.9898) * 1.5;
  if (!at::isComplexType(type)) return real.to(type);
  return at::complex(real, at::cos(counter * 7.77));
}

/// Something that is not linear in `y` and differs from rank to rank; a real number.
inline at::Tensor loss_of(const at::Tensor& y, std::int64_t rank) {
  const at::Tensor weighted = y * numbers(y.sizes(), 100 + rank, y.scalar_type());
  const at::Tensor cubes = weighted * y * y;
  return at::isComplexType(y.scalar_type()) ? at::real(cubes).sum() + at::imag(weighted).sum()
                                            : cubes.sum() + weighted.sum();
}

inline at::Tensor gradient(const at::Tensor& of, const at::Tensor& by, bool create_graph) {
  const auto found =
      torch::autograd::grad({of}, {by}, {}, create_graph, create_graph, /*allow_unused=*/true);
  return found[0].defined() ? found[0] : at::zeros_like(by);
}

/// The first gradient of `x`, and that of its product with fixed numbers.
struct Gradients {
  at::Tensor first;
  at::Tensor second;
};

inline at::Tensor direction(const at::Tensor& gradient, std::int64_t rank) {
  const at::Tensor product =
      gradient * numbers(gradient.sizes(), 200 + rank, gradient.scalar_type());
  return at::isComplexType(product.scalar_type()) ? at::real(product).sum() : product.sum();
}

inline Gradients plain_gradients(const Tensors& values, const Plain& plain, std::int64_t rank) {
  Tensors inputs;
  for (const auto& value : values) inputs.push_back(value.clone().requires_grad_());
  const Tensors outputs = plain(inputs);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (std::size_t r = 0; r < outputs.size(); ++r) {
    loss = loss + loss_of(outputs[r], static_cast<std::int64_t>(r));
  }
  const auto firsts = torch::autograd::grad({loss}, inputs, {}, true, true, true);
  at::Tensor product = at::zeros({}, at::kDouble);
  for (std::size_t r = 0; r < firsts.size(); ++r) {
    if (firsts[r].defined()) {
      product = product + direction(firsts[r], static_cast<std::int64_t>(r));
    }
  }
  const auto own = static_cast<std::size_t>(rank);
  const at::Tensor first =
      firsts[own].defined() ? firsts[own].detach() : at::zeros_like(values[own]);
  return {first, gradient(product, inputs[own], false)};
}

inline Gradients distributed_gradients(const at::Tensor& value, const Distributed& collective,
                                       const World& world) {
  const at::Tensor x = value.clone().requires_grad_();
  const at::Tensor loss = loss_of(collective(x, world.group()), world.rank());
  const at::Tensor first = gradient(loss, x, true);
  const at::Tensor second = gradient(direction(first, world.rank()), x, false);
  return {first.detach(), second};
}

inline void expect_plain_gradients(const Input& input, const Distributed& collective,
                                   const std::function<Plain(std::int64_t ranks)>& plain) {
  on_every_rank_count([&](World& world) {
    Tensors values;
    for (std::int64_t rank = 0; rank < world.size(); ++rank) values.push_back(input(rank));
    const auto expected = plain_gradients(values, plain(world.size()), world.rank());
    const auto actual =
        distributed_gradients(values[static_cast<std::size_t>(world.rank())], collective, world);
    expect_same_values(actual.first, expected.first, 1e-10);
    expect_same_values(actual.second, expected.second, 1e-10);
  });
}

inline Plain everywhere(const std::function<at::Tensor(const Tensors&)>& reduce) {
  return [reduce](const Tensors& inputs) { return Tensors(inputs.size(), reduce(inputs)); };
}

/// Inputs of [3,2], the same shape on each rank.
inline Input same_shapes(at::ScalarType type = at::kDouble) {
  return [type](std::int64_t rank) { return numbers({3, 2}, rank, type); };
}

inline at::Tensor sum_of(const Tensors& inputs) { return at::stack(inputs).sum(0); }
inline at::Tensor mean_of(const Tensors& inputs) { return at::stack(inputs).mean(0); }
inline at::Tensor max_of(const Tensors& inputs) { return at::amax(at::stack(inputs), 0); }
inline at::Tensor min_of(const Tensors& inputs) { return at::amin(at::stack(inputs), 0); }
inline at::Tensor product_of(const Tensors& inputs) {
  at::Tensor product = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) product = product * inputs[i];
  return product;
}

}  // namespace tessera::test
