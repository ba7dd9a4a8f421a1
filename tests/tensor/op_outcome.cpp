#include "tensor/op_outcome.h"

#include <functional>

#include <torch/torch.h>

#include "tessera/base/concat.h"
#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/random.h"

namespace tessera::test {
namespace {

bool has_gradients(const OpEntry& entry) {
  return entry.check != OpCheck::values && entry.check != OpCheck::shapes;
}

bool is_differentiable(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
}

std::uint64_t mixed(const std::string& name, std::uint64_t seed) {
  std::uint64_t hash = 1469598103934665603ULL ^ seed;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ULL;
  }
  return hash;
}

}  // namespace

Case make_case(const std::string& family, const OpEntry& entry, std::uint64_t seed,
               std::optional<std::int64_t> ranks) {
  Random random(mixed(concat(family, '/', entry.name), seed));
  Case made;
  made.id = concat(family, '/', entry.name, ':', seed);
  made.entry = &entry;
  made.seed = seed;
  made.ranks = random.pick(std::vector<std::int64_t>{1, 2, 2, 2, 3, 3, 4, 4, 4});
  made.ranks = ranks.value_or(made.ranks);
  const auto meshes = mesh_sizes(made.ranks);
  made.mesh = static_cast<std::size_t>(random.between(0, std::ssize(meshes) - 1));
  made.arguments = entry.make(random);
  for (const auto& tensor : made.arguments.tensors) {
    made.layouts.push_back(
        tensor.defined() ? random_argument_layout(random, tensor, std::ssize(meshes[made.mesh]))
                         : ArgumentLayout());
  }
  made.twice = has_gradients(entry) && entry.check != OpCheck::rough && random.one_in(8);
  made.shards_weights = random.one_in(3);
  return made;
}

namespace {

/// What the results are multiplied by, so that all their gradients differ.
at::Tensor weights_for(const at::Tensor& result, std::size_t index) {
  const auto count = torch::arange(result.numel(), torch::kDouble) + static_cast<double>(index);
  return (count * 0.7).sin().add(1.5).reshape(result.sizes()).to(result.scalar_type());
}

using Weigh = std::function<at::Tensor(const at::Tensor& weights)>;

/// The sum of all results that have gradients, weighted; undefined without any.
at::Tensor loss_of(const std::vector<at::Tensor>& results, const Weigh& weigh) {
  at::Tensor loss;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].defined() || !results[i].requires_grad()) continue;
    const at::Tensor real = results[i].is_complex() ? torch::view_as_real(results[i]) : results[i];
    const at::Tensor term = (real * weigh(weights_for(real, i))).sum().to(torch::kDouble);
    loss = loss.defined() ? loss + term : term;
  }
  return loss;
}

/// Calls the op on arguments made from leaves, and differentiates.
Outcome outcome_of(const Case& tested, const std::vector<at::Tensor>& leaves, const Weigh& weigh) {
  Outcome outcome;
  OpArguments arguments = tested.arguments;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    arguments.tensors[i] = tested.layouts[i].is_transposed ? leaves[i].transpose(0, -1) : leaves[i];
  }
  manual_seed(tested.seed);
  outcome.results = tested.entry->call(arguments);
  if (!has_gradients(*tested.entry)) return outcome;
  const at::Tensor loss = loss_of(outcome.results, weigh);
  if (!loss.defined()) return outcome;
  std::vector<at::Tensor> sources;
  for (const auto& leaf : leaves) {
    if (is_differentiable(leaf)) sources.push_back(leaf);
  }
  if (!tested.twice) {
    loss.backward();
    for (const auto& leaf : sources) outcome.gradients.push_back(leaf.grad());
    return outcome;
  }
  outcome.gradients = torch::autograd::grad({loss}, sources, {}, true, /*create_graph=*/true, true);
  at::Tensor squares;
  for (const auto& gradient : outcome.gradients) {
    if (!gradient.defined() || !gradient.requires_grad()) continue;
    const at::Tensor term = (gradient * gradient).sum().to(torch::kDouble);
    squares = squares.defined() ? squares + term : term;
  }
  if (!squares.defined()) return outcome;
  squares.backward();
  for (const auto& leaf : sources) outcome.second.push_back(leaf.grad());
  return outcome;
}

}  // namespace

std::vector<at::Tensor> stored(const Case& tested) {
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < tested.arguments.tensors.size(); ++i) {
    const auto& tensor = tested.arguments.tensors[i];
    all.push_back(tested.layouts[i].is_transposed ? tensor.transpose(0, -1).contiguous() : tensor);
  }
  return all;
}

namespace {

void require_gradients(const Case& tested, std::vector<at::Tensor>& leaves) {
  for (auto& leaf : leaves) {
    if (has_gradients(*tested.entry) && is_differentiable(leaf)) leaf.requires_grad_(true);
  }
}

Outcome plain_outcome(const Case& tested) {
  auto leaves = stored(tested);
  for (auto& leaf : leaves) {
    if (leaf.defined()) leaf = leaf.detach().clone();
  }
  require_gradients(tested, leaves);
  return outcome_of(tested, leaves, [](const at::Tensor& weights) { return weights; });
}

}  // namespace

std::vector<at::Tensor> distributed_leaves(const Case& tested, const DeviceMesh& mesh) {
  auto leaves = stored(tested);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].defined()) continue;
    leaves[i] = placed(leaves[i], mesh, tested.layouts[i]);
  }
  require_gradients(tested, leaves);
  return leaves;
}

Outcome distributed_outcome(const Case& tested, const DeviceMesh& mesh,
                            const std::vector<at::Tensor>& leaves) {
  return outcome_of(tested, leaves, [&](const at::Tensor& weights) {
    Placements placements(static_cast<std::size_t>(mesh.ndim()), Replicate());
    if (tested.shards_weights && weights.dim() > 0) placements.front() = Shard(0);
    return distribute_tensor(weights, mesh, placements, {.src_data_rank = std::nullopt});
  });
}

namespace {

std::vector<at::Tensor> whole_tensors(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_history;
  std::vector<at::Tensor> whole;
  for (const auto& tensor : tensors) {
    whole.push_back(tensor.defined() && is_dtensor(tensor) ? full_tensor(tensor) : tensor);
  }
  return whole;
}

/// What random calls are compared with: the same call on one rank.
Outcome one_rank_outcome(const Case& tested) {
  Outcome outcome;
  run_ranks(1, [&](World&) {
    const auto mesh = init_device_mesh("cpu", {1});
    Case replicated = tested;
    for (auto& layout : replicated.layouts) layout.placements = {Replicate()};
    outcome = distributed_outcome(replicated, mesh, distributed_leaves(replicated, mesh));
    outcome.results = whole_tensors(outcome.results);
    outcome.gradients = whole_tensors(outcome.gradients);
    outcome.second = whole_tensors(outcome.second);
  });
  return outcome;
}

}  // namespace

void expect(Case& tested) {
  const bool is_random = tested.entry->check == OpCheck::random;
  const auto attempt = [&] {
    try {
      tested.expected = is_random ? one_rank_outcome(tested) : plain_outcome(tested);
    } catch (const std::exception& error) {
      tested.expected.error = error.what();
    }
  };
  attempt();
  if (!tested.expected.error || !tested.twice) return;
  tested.twice = false;
  tested.expected = {};
  attempt();
}

}  // namespace tessera::test
