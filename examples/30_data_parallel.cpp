// Data parallel: every rank holds the network, batches are cut, gradients are summed in one message.
#include <iostream>

#include <tessera/tessera.h>

#include <torch/torch.h>

using namespace tessera;

int main(int argc, char** argv) {
  return launch(argc, argv, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"dp"});
    torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::GELU(),
                              torch::nn::Linear(32, 1));
    nn::data_parallel(*net, mesh);  // All ranks take the first one's values.
    torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));

    manual_seed(1);
    const auto x = randn({30, 8}, mesh, {Shard(0)});  // 30 rows need not divide by the ranks.
    const auto y = x.sum(1, /*keepdim=*/true).sin();
    double first = 0;
    double last = 0;
    CommDebugMode traffic;
    for (int step = 0; step < 50; ++step) {
      const auto scope = traffic.record();
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(net->forward(x), y);  // Of all 30 rows, on every rank.
      loss.backward();
      optimizer.step();
      last = loss.item<double>();
      if (step == 0) first = last;
    }

    TORCH_CHECK(last < first / 4, "the loss went from ", first, " to ", last);
    TORCH_CHECK(traffic.count("all_reduce_coalesced") == 50, traffic.table());
    if (world.rank() == 0) std::cout << first << " -> " << last << '\n' << traffic.table();
  });
}
