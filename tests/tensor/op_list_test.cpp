#include <gtest/gtest.h>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "tensor/op_arguments.h"
#include "tensor/op_tables.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;

/// Three lists of the same tensors' shapes: parameters, gradients and states.
OpArguments lists(Random& random) {
  OpArguments made;
  std::vector<Shape> shapes;
  for (std::int64_t i = 0; i < random.between(1, 3); ++i) shapes.push_back(any_shape(random, 0, 3));
  for (int list = 0; list < 3; ++list) {
    for (const auto& shape : shapes) made.tensors.push_back(doubles(random, shape));
  }
  return made;
}

/// List `index` of three; copies, since most ops write.
R list_of(A a, std::size_t index) {
  const std::size_t count = a.tensors.size() / 3;
  R list;
  for (std::size_t i = 0; i < count; ++i)
    list.push_back(a[index * count + i].clone(at::MemoryFormat::Contiguous));
  return list;
}

R list_of_positive(A a, std::size_t index) {
  R list = list_of(a, index);
  for (auto& tensor : list) tensor = tensor.abs() + 0.5;
  return list;
}

template <typename Write>
R written(R list, const Write& write) {
  write(list);
  return list;
}

/// Trains copies of the first list with gradients of the second, for two steps.
template <typename Optimizer, typename Options>
R trained(A a, const Options& options) {
  R parameters;
  for (const auto& tensor : list_of(a, 0)) {
    parameters.push_back(tensor.detach().requires_grad_(true));
  }
  const R gradients = list_of(a, 1);
  Optimizer optimizer(parameters, options);
  for (int step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() = gradients[i].detach() * (step + 1);
    }
    optimizer.step();
  }
  R result;
  for (const auto& parameter : parameters) result.push_back(parameter.detach());
  return result;
}

R clipped(A a) {
  R parameters;
  const R gradients = list_of(a, 1);
  for (const auto& tensor : list_of(a, 0)) {
    parameters.push_back(tensor.detach().requires_grad_(true));
    parameters.back().mutable_grad() = gradients[parameters.size() - 1].detach();
  }
  torch::nn::utils::clip_grad_norm_(parameters, 0.5);
  R result;
  for (const auto& parameter : parameters) result.push_back(parameter.grad());
  return result;
}

R fused_adamw(A a) {
  R parameters = list_of(a, 0);
  R averages = list_of(a, 2);
  R squares = list_of_positive(a, 2);
  R steps;
  for (const auto& tensor : parameters) steps.push_back(tensor.new_ones({}).to(at::kFloat));
  at::_fused_adamw_(parameters, list_of(a, 1), averages, squares, {}, steps, 0.1, 0.9, 0.99, 0.01,
                    1e-8, false, false);
  R result = parameters;
  result.insert(result.end(), averages.begin(), averages.end());
  result.insert(result.end(), squares.begin(), squares.end());
  return result;
}

R fused_sgd(A a) {
  R parameters = list_of(a, 0);
  R buffers = list_of(a, 2);
  at::_fused_sgd_(parameters, list_of(a, 1), buffers, 0.01, 0.9, 0.1, 0, false, false, false);
  R result = parameters;
  result.insert(result.end(), buffers.begin(), buffers.end());
  return result;
}

const std::vector<OpEntry>& list_ops() {
  constexpr auto kCheck = OpCheck::values;
  static const std::vector<OpEntry> table = {
      {"clip_grad_norm", lists, clipped, kCheck},
      {"foreach_abs", lists, [](A a) { return R{at::_foreach_abs(list_of(a, 0))}; }},
      {"foreach_add", lists,
       [](A a) { return R{at::_foreach_add(list_of(a, 0), list_of(a, 1), 2)}; }},
      {"foreach_add_", lists,
       [](A a) {
         return written(list_of(a, 0), [&](R& x) { at::_foreach_add_(x, list_of(a, 1)); });
       },
       kCheck},
      {"foreach_add_number", lists, [](A a) { return R{at::_foreach_add(list_of(a, 0), 2)}; }},
      {"foreach_addcdiv_", lists,
       [](A a) {
         return written(list_of(a, 0), [&](R& x) {
           at::_foreach_addcdiv_(x, list_of(a, 1), list_of_positive(a, 2), 0.5);
         });
       },
       kCheck},
      {"foreach_addcmul", lists,
       [](A a) {
         return R{at::_foreach_addcmul(list_of(a, 0), list_of(a, 1), list_of(a, 2), 0.5)};
       }},
      {"foreach_addcmul_", lists,
       [](A a) {
         return written(list_of(a, 0),
                        [&](R& x) { at::_foreach_addcmul_(x, list_of(a, 1), list_of(a, 2), 0.5); });
       },
       kCheck},
      {"foreach_copy_", lists,
       [](A a) {
         return written(list_of(a, 0), [&](R& x) { at::_foreach_copy_(x, list_of(a, 1)); });
       },
       kCheck},
      {"foreach_div", lists,
       [](A a) { return R{at::_foreach_div(list_of(a, 0), list_of_positive(a, 1))}; }},
      {"foreach_exp", lists, [](A a) { return R{at::_foreach_exp(list_of(a, 0))}; }},
      {"foreach_lerp_", lists,
       [](A a) {
         return written(list_of(a, 0), [&](R& x) { at::_foreach_lerp_(x, list_of(a, 1), 0.3); });
       },
       kCheck},
      {"foreach_max", lists, [](A a) { return R{at::_foreach_max(list_of_positive(a, 0))}; },
       kCheck},
      {"foreach_maximum", lists,
       [](A a) { return R{at::_foreach_maximum(list_of(a, 0), list_of(a, 1))}; }},
      {"foreach_mul", lists, [](A a) { return R{at::_foreach_mul(list_of(a, 0), list_of(a, 1))}; }},
      {"foreach_mul_", lists,
       [](A a) { return written(list_of(a, 0), [&](R& x) { at::_foreach_mul_(x, 0.5); }); },
       kCheck},
      {"foreach_neg", lists, [](A a) { return R{at::_foreach_neg(list_of(a, 0))}; }},
      {"foreach_norm", lists, [](A a) { return R{at::_foreach_norm(list_of(a, 0))}; }},
      {"foreach_norm_1", lists, [](A a) { return R{at::_foreach_norm(list_of(a, 0), 1)}; }},
      {"foreach_sqrt", lists, [](A a) { return R{at::_foreach_sqrt(list_of_positive(a, 0))}; }},
      {"foreach_sub", lists, [](A a) { return R{at::_foreach_sub(list_of(a, 0), list_of(a, 1))}; }},
      {"foreach_zero_", lists,
       [](A a) { return written(list_of(a, 0), [&](R& x) { at::_foreach_zero_(x); }); }, kCheck},
      {"fused_adamw", lists, fused_adamw, kCheck},
      {"fused_sgd", lists, fused_sgd, kCheck},
      {"optim_adagrad", lists,
       [](A a) { return trained<torch::optim::Adagrad>(a, torch::optim::AdagradOptions(0.1)); },
       kCheck},
      {"optim_adam", lists,
       [](A a) {
         return trained<torch::optim::Adam>(a, torch::optim::AdamOptions(0.1).amsgrad(true));
       },
       kCheck},
      {"optim_adamw", lists,
       [](A a) { return trained<torch::optim::AdamW>(a, torch::optim::AdamWOptions(0.1)); },
       kCheck},
      {"optim_rmsprop", lists,
       [](A a) {
         return trained<torch::optim::RMSprop>(
             a, torch::optim::RMSpropOptions(0.1).momentum(0.5).centered(true));
       },
       kCheck},
      {"optim_sgd", lists,
       [](A a) {
         return trained<torch::optim::SGD>(
             a, torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
       },
       kCheck},
      {"optim_sgd_plain", lists,
       [](A a) {
         return trained<torch::optim::SGD>(a, torch::optim::SGDOptions(0.1).weight_decay(0.1));
       },
       kCheck},
  };
  return table;
}

/// For the lifetime of the object, ops that gain from it compute in bfloat16.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

template <typename Call>
R autocast(const Call& call) {
  const Autocast scope;
  return call();
}

at::Tensor floats(Random& random, const Shape& shape) {
  return doubles(random, shape).to(at::kFloat) * 0.4;
}

OpArguments of_layers(Random& random) {
  const auto n = full_size(random), e = full_size(random);
  return {{floats(random, {n, e}), floats(random, {e, e}), floats(random, {e}),
           floats(random, {n, e})}};
}

OpArguments of_heads(Random& random) {
  const auto b = full_size(random), h = random.between(1, 3), s = full_size(random);
  return {
      {floats(random, {b, h, s, 4}), floats(random, {b, h, s, 4}), floats(random, {b, h, s, 4})}};
}

OpArguments of_images(Random& random) {
  return {{floats(random, {full_size(random), 2, 4, 4}), floats(random, {3, 2, 3, 3}),
           floats(random, {3})}};
}

const std::vector<OpEntry>& autocast_ops() {
  constexpr auto kCheck = OpCheck::rough;
  static const std::vector<OpEntry> table = {
      {"attention", of_heads,
       [](A a) {
         return autocast([&] { return R{at::scaled_dot_product_attention(a[0], a[1], a[2])}; });
       },
       kCheck},
      {"cat", of_layers,
       [](A a) { return autocast([&] {
                   return R{at::cat({at::linear(a[0], a[1]), a[3]})};
                 }); },
       kCheck},
      {"conv2d", of_images,
       [](A a) { return autocast([&] { return R{at::conv2d(a[0], a[1], a[2])}; }); }, kCheck},
      {"linear", of_layers,
       [](A a) { return autocast([&] { return R{at::linear(a[0], a[1], a[2])}; }); }, kCheck},
      {"loss", of_layers,
       [](A a) { return autocast([&] { return R{at::mse_loss(at::linear(a[0], a[1]), a[3])}; }); },
       kCheck},
      {"mean", of_layers,
       [](A a) { return autocast([&] { return R{at::linear(a[0], a[1]).mean()}; }); }, kCheck},
      {"mm", of_layers, [](A a) { return autocast([&] { return R{at::mm(a[0], a[1])}; }); },
       kCheck},
      {"norm", of_layers,
       [](A a) { return autocast([&] { return R{at::linear(a[0], a[1]).norm()}; }); }, kCheck},
      {"softmax", of_layers,
       [](A a) { return autocast([&] { return R{at::softmax(at::mm(a[0], a[1]), 1)}; }); }, kCheck},
      {"two_layers", of_layers,
       [](A a) {
         return autocast([&] {
           const auto hidden = at::layer_norm(at::linear(a[0], a[1], a[2]), {a[2].size(0)});
           return R{at::linear(at::gelu(hidden), a[1], a[2])};
         });
       },
       kCheck},
      {"weight_used_twice", of_layers,
       [](A a) {
         return autocast([&] { return R{at::linear(a[0], a[1]) + at::linear(a[3], a[1])}; });
       },
       kCheck},
  };
  return table;
}

const std::vector<OpEntry>& factories() {
  static const std::vector<OpEntry> table = {
      {"empty_like", one, [](A a) { return R{at::empty_like(a[0])}; }, OpCheck::shapes},
      {"full_like", one, [](A a) { return R{at::full_like(a[0], 2.5)}; }},
      {"new_empty", one,
       [](A a) {
         return R{a[0].new_empty({3, 2}), a[0].new_empty(a[0].sizes())};
       },
       OpCheck::shapes},
      {"new_full", one,
       [](A a) {
         return R{a[0].new_full({3, 2}, 2), a[0].new_full(a[0].sizes(), 2)};
       }},
      {"new_ones", one,
       [](A a) {
         return R{a[0].new_ones({5}), a[0].new_ones(a[0].sizes())};
       }},
      {"new_zeros", one,
       [](A a) {
         return R{a[0].new_zeros({}), a[0].new_zeros(a[0].sizes(), at::kLong)};
       }},
      {"ones_like", one, [](A a) { return R{at::ones_like(a[0], at::kLong)}; }},
      {"zeros_like", one, [](A a) { return R{at::zeros_like(a[0]) + a[0]}; }},
  };
  return table;
}

const std::vector<OpEntry>& random_ops() {
  constexpr auto kCheck = OpCheck::random;
  static const std::vector<OpEntry> table = {
      {"bernoulli", one_unit, [](A a) { return R{at::bernoulli(a[0])}; }, kCheck},
      {"bernoulli_", one, [](A a) { return R{a[0].detach().clone().bernoulli_(0.4)}; }, kCheck},
      {"bernoulli_tensor_", one_unit,
       [](A a) { return R{at::zeros_like(a[0]).bernoulli_(a[0].detach())}; }, kCheck},
      {"cauchy_", one, [](A a) { return R{a[0].detach().clone().cauchy_()}; }, kCheck},
      {"dropout", one, [](A a) { return R{at::dropout(a[0], 0.4, true)}; }, kCheck},
      {"dropout_", one,
       [](A a) {
         auto x = a[0] * 1;
         return R{at::dropout_(x, 0.4, true)};
       },
       kCheck},
      {"exponential_", one, [](A a) { return R{a[0].detach().clone().exponential_()}; }, kCheck},
      {"feature_dropout", two_integers,
       [](A a) {
         return R{at::feature_dropout(
             a[0].to(at::kDouble).reshape({a[0].dim() == 0 ? 1 : a[0].size(0), -1, 1}), 0.4, true)};
       },
       kCheck},
      {"geometric_", one, [](A a) { return R{a[0].detach().clone().geometric_(0.4)}; }, kCheck},
      {"log_normal_", one, [](A a) { return R{a[0].detach().clone().log_normal_()}; }, kCheck},
      {"multinomial", one_full,
       [](A a) { return R{at::multinomial(a[0].detach().abs().reshape({-1}) + 0.1, 3, true)}; },
       kCheck},
      {"normal_", one, [](A a) { return R{a[0].detach().clone().normal_(1, 2)}; }, kCheck},
      {"normal_tensors", one_positive,
       [](A a) { return R{at::normal(a[0].detach(), a[0].detach())}; }, kCheck},
      {"rand_like", one, [](A a) { return R{at::rand_like(a[0])}; }, kCheck},
      {"randint_like", one, [](A a) { return R{at::randint_like(a[0].detach(), 2, 9)}; }, kCheck},
      {"randn_like", one, [](A a) { return R{at::randn_like(a[0]) * a[0]}; }, kCheck},
      {"random_", one_integer, [](A a) { return R{a[0].clone().random_(3, 70)}; }, kCheck},
      {"randperm_like", one_full,
       [](A a) { return R{at::rand_like(a[0].reshape({-1})).argsort()}; }, kCheck},
      {"rrelu", one, [](A a) { return R{at::rrelu(a[0], 0.1, 0.3, true)}; }, kCheck},
      {"two_draws", one,
       [](A a) {
         return R{at::rand_like(a[0]), at::rand_like(a[0])};
       },
       kCheck},
      {"uniform_", one, [](A a) { return R{a[0].detach().clone().uniform_(-1, 3)}; }, kCheck},
  };
  return table;
}

TEST(OpSweepTest, ListsAndOptimizers) { check_family("list", list_ops(), 40); }
TEST(OpSweepTest, Autocast) { check_family("autocast", autocast_ops(), 40); }
TEST(OpSweepTest, Factories) { check_family("factory", factories(), 60); }
TEST(OpSweepTest, RandomNumbers) { check_family("random", random_ops(), 40); }

}  // namespace

const std::vector<OpEntry>& list_table() { return list_ops(); }
const std::vector<OpEntry>& random_table() { return random_ops(); }

}  // namespace tessera::test
