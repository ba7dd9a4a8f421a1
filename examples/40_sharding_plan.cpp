// An MLP sharded by a plan: where everything is, training, another cut, and the whole again.
#include <iostream>

#include <tessera/tessera.h>

#include <torch/torch.h>

using namespace tessera;
using sharded::ChunkShardingSpec;

namespace {

torch::nn::Sequential make_mlp() {
  return torch::nn::Sequential(torch::nn::Linear(16, 32), torch::nn::ReLU(),
                               torch::nn::Linear(32, 4));
}

void print_places(torch::nn::Module& module, const World& world) {
  for (const auto& item : module.named_parameters()) {
    std::cout << item.key() << ": " << layout_of(item.value()) << ", rank " << world.rank()
              << " holds " << to_local(item.value()).sizes() << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  return launch(argc, argv, [](World& world) {
    const auto ranks = world.group().ranks();
    auto plain = make_mlp();
    auto mlp = make_mlp();
    // An optimizer may be made before or after: the parameters change in place.
    torch::optim::SGD plain_optimizer(plain->parameters(), 0.1);
    torch::optim::SGD optimizer(mlp->parameters(), 0.1);

    // The first layer by columns, the second by rows; what the network returns, by samples.
    sharded::shard_module(*mlp, {.plan = {{"0.*", ChunkShardingSpec::over(0, ranks)},
                                          {"2.weight", ChunkShardingSpec::over(1, ranks)}},
                                 .output_plan = {{"2", ChunkShardingSpec::over(0, ranks)}}});
    if (world.rank() == 0) print_places(*mlp, world);

    // A plain network with the same values, to compare with.
    const auto parameters = mlp->named_parameters();
    for (auto& item : plain->named_parameters()) {
      const torch::NoGradGuard no_grad;
      item.value().copy_(full_tensor(parameters[item.key()]));
    }
    const at::Tensor weight = parameters["0.weight"];
    const at::Tensor x = torch::randn({8, 16});
    const at::Tensor input = distribute_tensor(x, mesh_of(weight), {Replicate()});
    const at::Tensor same_x = full_tensor(input);  // Rank 0's, on every rank.
    for (int step = 0; step < 20; ++step) {
      plain_optimizer.zero_grad();
      optimizer.zero_grad();
      const at::Tensor expected = plain->forward(same_x).square().mean();
      const at::Tensor loss = mlp->forward(input).square().mean();
      expected.backward();
      loss.backward();
      plain_optimizer.step();
      optimizer.step();
      const at::Tensor value = full_tensor(loss.detach());
      TORCH_CHECK(torch::allclose(value, expected, 1e-4), value, " and ", expected);
      if (world.rank() == 0 && step % 5 == 0) {
        std::cout << "step " << step << ": loss " << value.item<float>() << '\n';
      }
    }

    // The shards of a parameter, on the ranks in the opposite order; only what must move does.
    const auto shards = sharded::from_dtensor(weight.detach());
    CommDebugMode traffic;
    {
      const auto scope = traffic.record();
      const auto turned = shards.reshard(
          ChunkShardingSpec::over(1, std::vector<std::int64_t>(ranks.rbegin(), ranks.rend())));
      const at::Tensor whole = turned.gather();  // On rank 0.
      if (world.rank() == 0) {
        TORCH_CHECK(torch::allclose(whole, plain->named_parameters()["0.weight"], 1e-4, 1e-5));
        std::cout << turned << '\n';
      }
    }
    if (world.rank() == 0) std::cout << traffic.table();
  });
}
