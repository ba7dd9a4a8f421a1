// Sequence parallelism with hooks, in the manner of Megatron and of PyTorch's parallelize_module: norms
// work on pieces of the sequence, the layers between them on pieces of the features. Members that take
// part are declared Hooked. The head's classes stay cut, and so does the loss.
//
//     21_sequence_parallel --ranks 4

#include <iostream>

#include <tessera/nn/hooked.h>
#include <tessera/tessera.h>

#include <torch/torch.h>

using namespace tessera;

struct BlockImpl : torch::nn::Module {
  nn::Hooked<torch::nn::LayerNorm> norm{nullptr};
  nn::Hooked<torch::nn::Linear> fc1{nullptr};
  nn::Hooked<torch::nn::Linear> fc2{nullptr};

  explicit BlockImpl(std::int64_t width) {
    norm = register_module("norm",
                           nn::Hooked<torch::nn::LayerNorm>(torch::nn::LayerNormOptions({width})));
    fc1 = register_module("fc1", nn::Hooked<torch::nn::Linear>(width, 4 * width));
    fc2 = register_module("fc2", nn::Hooked<torch::nn::Linear>(4 * width, width));
  }

  at::Tensor forward(const at::Tensor& x) { return x + fc2(torch::gelu(fc1(norm(x)))); }
};
TORCH_MODULE(Block);

struct ModelImpl : torch::nn::Module {
  nn::Hooked<torch::nn::Embedding> embedding{nullptr};
  torch::nn::Sequential blocks;
  nn::Hooked<torch::nn::Linear> head{nullptr};

  ModelImpl() {
    embedding = register_module("embedding", nn::Hooked<torch::nn::Embedding>(50, 16));
    blocks = register_module("blocks", torch::nn::Sequential(Block(16), Block(16)));
    head = register_module("head", nn::Hooked<torch::nn::Linear>(16, 50));
  }

  at::Tensor forward(const at::Tensor& tokens) { return head(blocks->forward(embedding(tokens))); }
};
TORCH_MODULE(Model);

int main(int argc, char** argv) {
  return launch(argc, argv, [](World& world) {
    const auto mesh = init_device_mesh("cpu", {world.size()}, {"tp"});
    const auto tokens = torch::arange(2 * 12).remainder(50).reshape({2, 12});
    const auto target = (tokens + 1).reshape({-1});
    Model model;
    Model plain;

    // Between the modules of the plan pass DTensors that are cut along the sequence, dim 1.
    nn::parallelize_module(
        *model, mesh,
        {{"embedding", nn::RowwiseParallel{.output_layouts = Shard(1), .use_local_output = false}},
         {"blocks.*.norm", nn::SequenceParallel{}},
         {"blocks.*.fc1",
          nn::ColwiseParallel{.input_layouts = Shard(1), .use_local_output = false}},
         {"blocks.*.fc2",
          nn::RowwiseParallel{.output_layouts = Shard(1), .use_local_output = false}},
         {"head", nn::ColwiseParallel{.input_layouts = Shard(1), .use_local_output = false}}});
    // The same values for comparison.
    nn::load_state_dict(*plain, nn::full_state_dict(*model));

    const auto logits = model(tokens);  // Plain tokens, equal on all ranks.
    TORCH_CHECK(placements_of(logits) == Placements{Shard(2)}, "classes stay cut");

    // The loss needs no gathered logits: a few numbers per token go around.
    CommDebugMode traffic;
    at::Tensor loss;
    {
      const nn::LossParallel guard;
      const auto scope = traffic.record();
      loss = torch::nn::functional::cross_entropy(logits.flatten(0, 1), target);
    }
    const auto expected = torch::nn::functional::cross_entropy(plain(tokens).flatten(0, 1), target);
    TORCH_CHECK(torch::allclose(full_tensor(loss), expected, 1e-4, 1e-5));

    loss.backward();
    expected.backward();
    TORCH_CHECK(torch::allclose(full_tensor(model->head->weight.grad()), plain->head->weight.grad(),
                                1e-3, 1e-5));
    if (world.rank() == 0) {
      std::cout << "loss " << loss.item<double>() << ", by itself " << expected.item<double>()
                << "\n"
                << traffic.table();
    }
  });
}
