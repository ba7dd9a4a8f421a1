#include <gtest/gtest.h>

#include <torch/torch.h>

#include "tensor/op_arguments.h"
#include "tensor/op_tables.h"

namespace tessera::test {
namespace {

using A = const OpArguments&;
using R = OpResults;
namespace F = torch::nn::functional;

/// Two tensors of one shape; numbers: the reduction (0 none, 1 mean, 2 sum).
OpArguments of_pair(Random& random) {
  const Shape shape = full_shape(random, 0, 3);
  return {{doubles(random, shape), doubles(random, shape)}, {random.between(0, 2)}};
}

OpArguments of_probabilities(Random& random) {
  const Shape shape = full_shape(random, 0, 3);
  return {{unit_values(random, shape).to(at::kDouble), unit_values(random, shape).to(at::kDouble),
           unit_values(random, shape).to(at::kDouble)},
          {random.between(0, 2)}};
}

/// scores [n, c], classes [n], weights [c]
OpArguments of_classes(Random& random) {
  const auto n = full_size(random), c = full_size(random) + 1;
  return {
      {doubles(random, {n, c}), integers(random, {n}, 0, c - 1), doubles(random, {c}).abs() + 0.1},
      {random.between(0, 2)}};
}

/// scores [n, c], and the classes of each sample, up to the first -1
OpArguments of_labels(Random& random) {
  const auto n = full_size(random), c = full_size(random) + 1;
  return {{doubles(random, {n, c}), integers(random, {n, c}, -1, c - 1)}, {random.between(0, 2)}};
}

/// scores [n, c, h, w], classes [n, h, w]
OpArguments of_pixels(Random& random) {
  const auto n = full_size(random), c = random.between(2, 4), h = random.between(1, 3),
             w = random.between(1, 3);
  return {{doubles(random, {n, c, h, w}), integers(random, {n, h, w}, 0, c - 1)},
          {random.between(0, 2)}};
}

OpArguments of_signs(Random& random) {
  const auto n = full_size(random);
  const auto d = full_size(random);
  return {{doubles(random, {n, d}), doubles(random, {n, d}),
           integers(random, {n}, 0, 1).to(at::kDouble) * 2 - 1, doubles(random, {n, d})},
          {random.between(0, 2)}};
}

OpArguments of_sequences(Random& random) {
  const std::int64_t t = 6, c = 4;
  const auto n = full_size(random);
  return {{doubles(random, {t, n, c}), integers(random, {n, 2}, 1, c - 1),
           torch::full({n}, t, at::kLong), torch::full({n}, 2, at::kLong)},
          {random.between(0, 2)}};
}

at::Tensor cross_entropy(A a, const F::CrossEntropyFuncOptions& options) {
  auto own = options;
  if (a.number(0) == 0) own.reduction(torch::kNone);
  if (a.number(0) == 2) own.reduction(torch::kSum);
  return F::cross_entropy(a[0], a[1], own);
}

const std::vector<OpEntry>& losses() {
  static const std::vector<OpEntry> table = {
      {"binary_cross_entropy", of_probabilities,
       [](A a) { return R{at::binary_cross_entropy(a[0], a[1].detach(), {}, a.number(0))}; }},
      {"binary_cross_entropy_logits", of_pair,
       [](A a) {
         return R{at::binary_cross_entropy_with_logits(a[0], a[1].sigmoid(), {}, {}, a.number(0))};
       }},
      {"binary_cross_entropy_weight", of_probabilities,
       [](A a) {
         return R{at::binary_cross_entropy(a[0], a[1].detach(), a[2].detach(), a.number(0))};
       }},
      {"cosine_embedding", of_signs,
       [](A a) { return R{at::cosine_embedding_loss(a[0], a[1], a[2], 0.2, a.number(0))}; }},
      {"cross_entropy", of_classes, [](A a) { return R{cross_entropy(a, {})}; }},
      {"cross_entropy_ignored", of_classes,
       [](A a) { return R{cross_entropy(a, F::CrossEntropyFuncOptions().ignore_index(1))}; }},
      {"cross_entropy_pixels", of_pixels, [](A a) { return R{cross_entropy(a, {})}; }},
      {"cross_entropy_probabilities", of_pair,
       [](A a) {
         const auto x = a[0].reshape({-1, a[0].dim() == 0 ? 1 : a[0].size(-1)});
         return R{
             at::cross_entropy_loss(x, at::softmax(a[1].reshape(x.sizes()), 1), {}, a.number(0))};
       }},
      {"cross_entropy_smoothed", of_classes,
       [](A a) { return R{at::cross_entropy_loss(a[0], a[1], {}, a.number(0), -100, 0.2)}; }},
      {"cross_entropy_weight", of_classes,
       [](A a) { return R{at::cross_entropy_loss(a[0], a[1], a[2].detach(), a.number(0))}; }},
      {"ctc", of_sequences,
       [](A a) {
         return R{at::ctc_loss(at::log_softmax(a[0], 2), a[1], a[2], a[3], 0, a.number(0))};
       }},
      {"gaussian_nll", of_probabilities,
       [](A a) { return R{(a[2].log() + (a[0] - a[1]).square() / a[2]).mean()}; }},
      {"hinge_embedding", of_pair,
       [](A a) {
         return R{at::hinge_embedding_loss(a[0], a[1].sign().detach(), 1.0, a.number(0))};
       }},
      {"huber", of_pair, [](A a) { return R{at::huber_loss(a[0], a[1], a.number(0), 0.7)}; }},
      {"kl_div", of_probabilities,
       [](A a) { return R{at::kl_div(a[0].log(), a[1], a.number(0), false)}; }},
      {"l1", of_pair, [](A a) { return R{at::l1_loss(a[0], a[1], a.number(0))}; }},
      {"margin_ranking", of_pair,
       [](A a) {
         return R{
             at::margin_ranking_loss(a[0], a[1], (a[0] - 0.3).sign().detach(), 0.1, a.number(0))};
       }},
      {"mse", of_pair, [](A a) { return R{at::mse_loss(a[0], a[1], a.number(0))}; }},
      {"multi_margin", of_classes,
       [](A a) { return R{at::multi_margin_loss(a[0], a[1], 1, 1, {}, a.number(0))}; }},
      {"multi_margin_weight", of_classes,
       [](A a) {
         return R{at::multi_margin_loss(a[0], a[1], 2, 0.5, a[2].detach(), a.number(0))};
       }},
      {"multilabel_margin", of_labels,
       [](A a) { return R{at::multilabel_margin_loss(a[0], a[1], a.number(0))}; }},
      {"nll", of_classes,
       [](A a) { return R{at::nll_loss(at::log_softmax(a[0], 1), a[1], {}, a.number(0))}; }},
      {"nll_weight", of_classes,
       [](A a) {
         return R{at::nll_loss(at::log_softmax(a[0], 1), a[1], a[2].detach(), a.number(0), 0)};
       }},
      {"poisson_nll", of_probabilities,
       [](A a) { return R{at::poisson_nll_loss(a[0], a[1], true, false, 1e-8, a.number(0))}; }},
      {"smooth_l1", of_pair,
       [](A a) { return R{at::smooth_l1_loss(a[0], a[1], a.number(0), 0.6)}; }},
      {"soft_margin", of_pair,
       [](A a) { return R{at::soft_margin_loss(a[0], a[1].sign().detach(), a.number(0))}; }},
      {"triplet_margin", of_signs,
       [](A a) {
         return R{at::triplet_margin_loss(a[0], a[1], a[3], 1.0, 2, 1e-6, false, a.number(0))};
       }},
  };
  return table;
}

TEST(OpSweepTest, Losses) { check_family("loss", losses(), 40); }

}  // namespace

const std::vector<OpEntry>& loss_table() { return losses(); }

}  // namespace tessera::test
