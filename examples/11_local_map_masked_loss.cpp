// The mean loss over those tokens that count, of a batch whose ranks hold different numbers of such
// tokens. A mean of the ranks' means would be wrong; sums and counts can be added up. Every rank
// returns its own, declared `Partial`: they add up to the result when somebody needs it.
//
//     11_local_map_masked_loss --ranks 3

#include <iostream>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/base/error.h"
#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

using tessera::Partial;
using tessera::Shard;

namespace {

/// The sum of the losses of the tokens that count, and how many they are.
std::pair<at::Tensor, at::Tensor> masked_loss(const at::Tensor& logits, const at::Tensor& targets,
                                              const at::Tensor& mask) {
  const at::Tensor losses = -at::log_softmax(logits, 1).gather(1, targets.unsqueeze(1)).squeeze(1);
  return {(losses * mask).sum(), mask.sum()};
}

}  // namespace

int main(int argc, char** argv) {
  return tessera::launch(argc, argv, [](tessera::World& world) {
    const auto mesh = tessera::init_device_mesh("cpu", {world.size()});
    const std::int64_t tokens = 11;  // Whatever the number of ranks: shards may be uneven.
    const at::Tensor logits = at::arange(tokens * 5, at::kDouble).reshape({tokens, 5}).sin();
    const at::Tensor targets = at::arange(tokens).remainder(5);
    const at::Tensor mask = at::arange(tokens).remainder(3).ne(0).to(at::kDouble);

    // One entry for both results: a sum that is spread over the ranks.
    const auto mapped = tessera::local_map(
        masked_loss,
        {.out_placements = {{Partial()}}, .in_placements = {{Shard(0)}, {Shard(0)}, {Shard(0)}}});

    const auto rows = [&](const at::Tensor& x) {
      return tessera::distribute_tensor(x, mesh, {Shard(0)});
    };
    const at::Tensor logits_parts = rows(logits).requires_grad_();
    const auto [sum, count] = mapped(logits_parts, rows(targets), rows(mask));
    const at::Tensor loss = tessera::full_tensor(sum) / tessera::full_tensor(count);
    loss.backward();

    const at::Tensor whole = logits.clone().requires_grad_();
    const auto [whole_sum, whole_count] = masked_loss(whole, targets, mask);
    const at::Tensor expected = whole_sum / whole_count;
    expected.backward();
    if (!at::allclose(loss, expected)) throw tessera::Error("the loss is wrong");
    if (!at::allclose(tessera::full_tensor(logits_parts.grad()), whole.grad())) {
      throw tessera::Error("the gradient is wrong");
    }
    if (world.rank() == 0) {
      std::cout << "loss " << loss.item<double>() << ", the mean over "
                << whole_count.item<double>() << " of " << tokens << " tokens\n";
    }
  });
}
