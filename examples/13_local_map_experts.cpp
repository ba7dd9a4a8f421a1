// A mixture of experts. Tokens and experts are spread over the ranks; a router picks one expert per
// token, and the token goes where that expert is (dispatch), through it, and back (combine). How many
// tokens a rank gets depends on the values, so the exchange is uneven.
//
//     13_local_map_experts --ranks 4

#include <iostream>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/base/error.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

using tessera::Replicate;
using tessera::Shard;

namespace {

constexpr std::int64_t kExpertsPerRank = 2;

std::vector<std::int64_t> numbers(const at::Tensor& x) {
  const at::Tensor row = x.contiguous();
  const auto* data = row.const_data_ptr<std::int64_t>();
  return {data, data + row.numel()};
}

/// Sends every token of `x` ([n, features]) through the expert that is its own.
at::Tensor through_experts(const at::Tensor& x, const at::Tensor& expert_of_token,
                           const at::Tensor& experts) {
  at::Tensor result = at::zeros_like(x);
  for (std::int64_t i = 0; i < experts.size(0); ++i) {
    const at::Tensor tokens = expert_of_token.eq(i).nonzero().squeeze(1);
    result = result.index_add(0, tokens, at::mm(x.index_select(0, tokens), experts[i]).tanh());
  }
  return result;
}

/// All experts on one rank: what the distributed layer must give.
at::Tensor plain_layer(const at::Tensor& tokens, const at::Tensor& gate,
                       const at::Tensor& experts) {
  const auto [weight, choice] = at::softmax(at::mm(tokens, gate), 1).max(1);
  return through_experts(tokens, choice, experts) * weight.unsqueeze(1);
}

/// The layer on one rank's tokens and experts.
at::Tensor expert_layer(const tessera::Group& group, const at::Tensor& tokens,
                        const at::Tensor& gate, const at::Tensor& experts) {
  const auto [weight, choice] = at::softmax(at::mm(tokens, gate), 1).max(1);
  // Tokens in the order of their experts, so that those for one rank are one piece.
  const at::Tensor order = choice.argsort(/*stable=*/true);
  const at::Tensor destination = choice.floor_divide(kExpertsPerRank);
  const at::Tensor sent = at::bincount(destination, {}, group.size());
  const at::Tensor received = tessera::all_to_all(sent, {}, {}, group);
  const auto send_splits = numbers(sent);
  const auto receive_splits = numbers(received);

  // Dispatch: the tokens, and which expert each of them is for.
  const at::Tensor arrived =
      tessera::all_to_all(tokens.index_select(0, order), receive_splits, send_splits, group);
  const at::Tensor expert =
      tessera::all_to_all(choice.index_select(0, order), receive_splits, send_splits, group) -
      group.index() * kExpertsPerRank;
  const at::Tensor done = through_experts(arrived, expert, experts);

  // Combine: the same way back, then the old order.
  const at::Tensor returned = tessera::all_to_all(done, send_splits, receive_splits, group);
  return returned.index_select(0, order.argsort()) * weight.unsqueeze(1);
}

}  // namespace

int main(int argc, char** argv) {
  return tessera::launch(argc, argv, [](tessera::World& world) {
    const auto mesh = tessera::init_device_mesh("cpu", {world.size()}, {"experts"});
    const std::int64_t count = 6 * world.size() + 1;  // Not the same number on every rank.
    const std::int64_t features = 4;
    const std::int64_t experts = kExpertsPerRank * world.size();
    const auto values = [](const std::vector<std::int64_t>& sizes, double step) {
      return (at::arange(c10::multiply_integers(sizes), at::kDouble) * step).sin().reshape(sizes);
    };
    const std::vector<at::Tensor> whole = {
        values({count, features}, 1.3).requires_grad_(),
        values({features, experts}, 0.9).requires_grad_(),
        values({experts, features, features}, 0.7).requires_grad_()};
    const auto parts_of = [&](std::size_t i, const tessera::Placement& placement) {
      return tessera::distribute_tensor(whole[i].detach(), mesh, {placement}).requires_grad_();
    };
    const std::vector<at::Tensor> parts = {parts_of(0, Shard(0)), parts_of(1, Replicate()),
                                           parts_of(2, Shard(0))};

    // The router is on all ranks, and each computes a part of its gradient: local_map adds them up.
    const auto layer = tessera::local_map(
        expert_layer, {.out_placements = {{Shard(0)}},
                       .in_placements = {std::nullopt, {Shard(0)}, {Replicate()}, {Shard(0)}},
                       .out_shapes = {{count, features}}});
    const at::Tensor result =
        tessera::full_tensor(layer(mesh.group("experts"), parts[0], parts[1], parts[2]));
    const at::Tensor expected = plain_layer(whole[0], whole[1], whole[2]);
    if (!at::allclose(result, expected)) throw tessera::Error("the result is wrong");

    const at::Tensor weights = values({count, features}, 0.5);
    (result * weights).sum().backward();
    (expected * weights).sum().backward();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!at::allclose(tessera::full_tensor(parts[i].grad()), whole[i].grad())) {
        throw tessera::Error("a gradient is wrong");
      }
    }
    if (world.rank() == 0) {
      std::cout << count << " tokens through " << experts << " experts on " << world.size()
                << " ranks give what they give on one; so do the gradients\n";
    }
  });
}
