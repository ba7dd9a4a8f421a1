// Fully sharded: a rank keeps a part of each parameter, its gradient and the optimizer's state.
#include <iostream>

#include <tessera/tessera.h>

#include <torch/torch.h>

using namespace tessera;

int main(int argc, char** argv) {
  return launch(argc, argv, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    torch::nn::Linear first(64, 256);
    torch::nn::Sequential net(first, torch::nn::GELU(), torch::nn::Linear(256, 4));
    nn::fully_shard(*net, mesh);
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));

    manual_seed(1);
    const auto x = randn({30, 64}, mesh, {Shard(0)});
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      // The weights are gathered where they are used, forth and back, and dropped again.
      net->forward(x).square().mean().backward();
    }
    optimizer.step();

    // What is kept is a part: of the weight, of its gradient, of the optimizer's state.
    const auto& weight = first->weight;
    TORCH_CHECK(placements_of(weight) == Placements{Shard(0)});
    TORCH_CHECK(placements_of(weight.grad()) == Placements{Shard(0)});
    const auto& state = static_cast<torch::optim::AdamWParamState&>(
        *optimizer.state().at(weight.unsafeGetTensorImpl()));
    TORCH_CHECK(placements_of(state.exp_avg()) == Placements{Shard(0)});
    if (world.rank() == 0) std::cout << draw(layout_of(weight)) << traffic.table();
  });
}
