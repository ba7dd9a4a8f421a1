// Tensor parallelism on a module that knows nothing of it: the first layer is cut by columns, the second
// one by rows, and the input becomes a DTensor once. Every rank computes with its part of the weights,
// and the only thing that is communicated forward is the sum of the results.
//
//     20_tensor_parallel_mlp --ranks 4

#include <iostream>

#include <tessera/tessera.h>

#include <torch/torch.h>

using namespace tessera;

// Unmodified libtorch.
struct MlpImpl : torch::nn::Module {
  torch::nn::Linear fc1{nullptr};
  torch::nn::Linear fc2{nullptr};

  MlpImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(16, 64));
    fc2 = register_module("fc2", torch::nn::Linear(64, 16));
  }

  at::Tensor forward(const at::Tensor& x) { return fc2(torch::gelu(fc1(x))); }
};
TORCH_MODULE(Mlp);

int main(int argc, char** argv) {
  return launch(argc, argv, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"tp"});
    Mlp mlp;
    torch::optim::AdamW optimizer(mlp->parameters(), torch::optim::AdamWOptions(1e-2));

    // In place: the optimizer that was made above trains the parts. Rank 0's values are taken.
    nn::parallelize_module(*mlp, mesh,
                           {{"fc1", nn::ColwiseParallel{}}, {"fc2", nn::RowwiseParallel{}}},
                           {.activations = nn::Activations::distributed});

    const auto x = randn({8, 16}, mesh, {Replicate()});
    double first = 0;
    double last = 0;
    CommDebugMode traffic;
    for (int step = 0; step < 20; ++step) {
      optimizer.zero_grad();
      at::Tensor y;
      {
        const auto scope = traffic.record();
        y = mlp(x);
      }
      const auto loss = (y - x).pow(2).mean();  // Learn to hand the input on.
      loss.backward();
      nn::clip_grad_norm(mlp->parameters(), 1.0);
      optimizer.step();
      last = loss.item<double>();
      if (step == 0) first = last;
    }
    if (world.rank() == 0) {
      std::cout << "fc1.weight " << layout_of(mlp->fc1->weight) << ", loss " << first << " -> "
                << last << "\n"
                << traffic.table();
    }
    TORCH_CHECK(last < first / 2, "the loss must fall");
    TORCH_CHECK(placements_of(mlp->fc1->weight) == Placements{Shard(0)});
    TORCH_CHECK(traffic.total_count() == 0, "forward leaves the sum to whoever needs it");
  });
}
