// A tensor on a mesh: libtorch's functions and autograd work on it as on any other.
#include <iostream>

#include <tessera/tessera.h>

#include <torch/torch.h>

using namespace tessera;

int main(int argc, char** argv) {
  return launch(argc, argv, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"tp"});
    const auto x = randn({8, 16}, mesh, {Replicate()});
    const auto w =
        randn({16, 32}, mesh, {Shard(1)}, torch::requires_grad());  // Columns over ranks.

    CommDebugMode traffic;
    const auto scope = traffic.record();
    const auto loss = torch::mm(x, w).relu().sum();  // Each rank works on its own columns.
    loss.backward();
    const auto rows = redistribute(w.grad(), {Shard(0)});  // The fewest bytes that do it.

    TORCH_CHECK(placements_of(w.grad()) == Placements{Shard(1)});
    TORCH_CHECK(torch::equal(full_tensor(rows), full_tensor(w.grad())));
    if (world.rank() == 0) std::cout << tessera::to_string(rows) << '\n' << traffic.table();
  });
}
