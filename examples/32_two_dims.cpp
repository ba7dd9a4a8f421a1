// Two mesh dims: layers are cut over tp; batches, and what is left of the parameters, over dp.
#include <iostream>

#include <tessera/tessera.h>

#include <torch/torch.h>

using namespace tessera;

int main(int argc, char** argv) {
  return launch(argc, argv, [](World& world) {
    const std::int64_t tp = world.size() % 2 == 0 ? 2 : 1;
    const auto mesh = init_device_mesh("cpu", {world.size() / tp, tp}, {"dp", "tp"});
    torch::nn::Linear up(16, 64);
    torch::nn::Linear down(64, 16);
    torch::nn::Sequential net(up, torch::nn::GELU(), down);

    // The first layer by columns and the second by rows: what is between them stays cut.
    nn::parallelize_module(*net, mesh, {{"0", nn::ColwiseParallel{}}, {"2", nn::RowwiseParallel{}}},
                           {.activations = nn::Activations::distributed, .mesh_dim = "tp"});
    nn::fully_shard(*net, mesh, {.mesh_dim = "dp"});
    TORCH_CHECK(placements_of(up->weight) == (Placements{Shard(1), Shard(0)}));
    TORCH_CHECK(placements_of(down->weight) == (Placements{Shard(0), Shard(1)}));

    manual_seed(1);
    const auto x = randn({12, 16}, mesh, {Shard(0), Replicate()});
    const auto loss = net->forward(x).square().mean();
    loss.backward();

    // The same on plain tensors.
    const auto inner =
        torch::gelu(torch::linear(full_tensor(x), full_tensor(up->weight), full_tensor(up->bias)));
    const auto expected =
        torch::linear(inner, full_tensor(down->weight), full_tensor(down->bias)).square().mean();
    TORCH_CHECK(torch::allclose(full_tensor(loss), expected, 1e-4));
    if (world.rank() == 0) {
      std::cout << beside(draw(layout_of(up->weight)), "    ", draw(layout_of(down->weight)));
    }
  });
}
