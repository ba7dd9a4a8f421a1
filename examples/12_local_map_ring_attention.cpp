// Causal attention over a sequence that is too long for one rank. Every rank keeps its queries, and
// the keys and values travel around the ring, one rank per step. The softmax is computed online: a
// block of keys at a time, with the largest score and the sum so far. No rank ever has the whole
// sequence, forward or backward.
//
//     12_local_map_ring_attention --ranks 4

#include <cmath>
#include <iostream>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/base/error.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

using tessera::Shard;

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// Scores of queries from `query_begin` on for keys from `key_begin` on; -inf for keys in the future.
at::Tensor causal_scores(const at::Tensor& q, const at::Tensor& k, std::int64_t query_begin,
                         std::int64_t key_begin) {
  const at::Tensor queries = at::arange(q.size(1)).unsqueeze(1) + query_begin;
  const at::Tensor keys = at::arange(k.size(1)).unsqueeze(0) + key_begin;
  const at::Tensor scores = at::bmm(q, k.transpose(1, 2)) / std::sqrt(double(q.size(2)));
  return scores.masked_fill(keys > queries, kMinusInfinity);
}

at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return at::bmm(at::softmax(causal_scores(q, k, 0, 0), -1), v);
}

/// The same for one rank's part of the sequence, [heads, positions, features].
at::Tensor ring_attention(const tessera::Group& ring, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v) {
  const std::int64_t ranks = ring.size();
  const std::int64_t rank = ring.index();
  std::vector<std::int64_t> next;
  for (std::int64_t i = 0; i < ranks; ++i) next.push_back((i + 1) % ranks);

  at::Tensor largest = at::full({q.size(0), q.size(1), 1}, kMinusInfinity, q.options());
  at::Tensor sum = at::zeros_like(largest);
  at::Tensor result = at::zeros_like(q);
  at::Tensor block = at::stack({k, v});  // Together, so that one message carries both.
  for (std::int64_t step = 0; step < ranks; ++step) {
    // The own block comes first, so that no query is ever without a key: `largest` is finite.
    const std::int64_t source = (rank - step + ranks) % ranks;
    const at::Tensor scores = causal_scores(q, block[0], rank * q.size(1), source * q.size(1));
    // The result does not depend on it, so it needs no gradient.
    const at::Tensor larger = at::maximum(largest, scores.detach().amax(-1, true));
    const at::Tensor weights = (scores - larger).exp();
    const at::Tensor correction = (largest - larger).exp();
    sum = sum * correction + weights.sum(-1, true);
    result = result * correction + at::bmm(weights, block[1]);
    largest = larger;
    // Blocks of the future are masked and not skipped: all ranks take part in every backward step.
    if (step + 1 < ranks) block = tessera::permute(block, next, ring);
  }
  return result / sum;
}

}  // namespace

int main(int argc, char** argv) {
  return tessera::launch(argc, argv, [](tessera::World& world) {
    const auto mesh = tessera::init_device_mesh("cpu", {world.size()}, {"context"});
    const std::vector<std::int64_t> sizes = {2, 4 * world.size(), 8};
    std::vector<at::Tensor> whole;
    std::vector<at::Tensor> parts;
    for (int i = 0; i < 3; ++i) {
      const auto index = at::arange(2 * 4 * world.size() * 8, at::kDouble);
      const at::Tensor values = (index * (0.37 + 0.1 * i)).sin().reshape(sizes);
      whole.push_back(values.clone().requires_grad_());
      parts.push_back(tessera::distribute_tensor(values, mesh, {Shard(1)}).requires_grad_());
    }

    const auto attention = tessera::local_map(
        ring_attention, {.out_placements = {{Shard(1)}},
                         .in_placements = {std::nullopt, {Shard(1)}, {Shard(1)}, {Shard(1)}}});
    const at::Tensor result =
        tessera::full_tensor(attention(mesh.group("context"), parts[0], parts[1], parts[2]));
    const at::Tensor expected = plain_attention(whole[0], whole[1], whole[2]);
    if (!at::allclose(result, expected)) throw tessera::Error("the result is wrong");

    const at::Tensor weights = at::arange(expected.numel(), at::kDouble).reshape(sizes).cos();
    (result * weights).sum().backward();
    (expected * weights).sum().backward();
    for (std::size_t i = 0; i < 3; ++i) {
      if (!at::allclose(tessera::full_tensor(parts[i].grad()), whole[i].grad())) {
        throw tessera::Error("a gradient is wrong");
      }
    }
    if (world.rank() == 0) {
      std::cout << "attention over " << sizes[1] << " positions, " << sizes[1] / world.size()
                << " on every rank, is that of one rank; so are its gradients\n";
    }
  });
}
