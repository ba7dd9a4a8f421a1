// Any module on a mesh: a function says how the parameters of each layer are placed, the rest is
// replicated, and two more functions take plain tensors to the mesh and back.
//
//     22_distribute_module --ranks 4

#include <iostream>

#include <tessera/nn/hooked.h>
#include <tessera/tessera.h>

#include <torch/torch.h>

using namespace tessera;

struct NetImpl : torch::nn::Module {
  torch::nn::Linear fc1{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear fc2{nullptr};

  NetImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(8, 10));
    norm = register_module("norm", torch::nn::BatchNorm1d(10));
    fc2 = register_module("fc2", torch::nn::Linear(10, 3));
  }

  at::Tensor forward(const at::Tensor& x) { return fc2(torch::relu(norm(fc1(x)))); }
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  return launch(argc, argv, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()});
    nn::Hooked<Net> net;  // Hooked, because its inputs and outputs are to be changed.

    nn::distribute_module(
        *net, mesh,
        [](const std::string& name, torch::nn::Module& module, const DeviceMesh& on) {
          if (name != "fc1") return;
          distribute_in_place(module.as<torch::nn::Linear>()->weight, on, {Shard(0)});
          distribute_in_place(module.as<torch::nn::Linear>()->bias, on, {Shard(0)});
        },
        [](torch::nn::Module&, nn::TensorLeaves inputs, const DeviceMesh& on) {
          *inputs[0] = distribute_tensor(*inputs[0], on, {Replicate()});
        },
        [](torch::nn::Module&, nn::TensorLeaves outputs, const DeviceMesh&) {
          *outputs[0] = full_tensor(*outputs[0]);
        });

    // The state as whole tensors goes into an ordinary module, which must compute the same.
    Net plain;
    nn::load_state_dict(*plain, nn::full_state_dict(*net));
    const auto x = torch::arange(48, torch::kFloat).sin().reshape({6, 8});
    TORCH_CHECK(torch::allclose(net(x), plain(x), 1e-4, 1e-5));

    for (const auto& [name, part] : nn::local_state_dict(*net)) {
      if (world.rank() == 0) std::cout << name << " " << *part.layout << "\n";
    }
    TORCH_CHECK(placements_of(net->fc1->weight) == Placements{Shard(0)});
    TORCH_CHECK(placements_of(net->norm->running_mean) == Placements{Replicate()});
  });
}
