#include "styles.h"

#include <algorithm>

#include <tessera/base/check.h>
#include <tessera/nn/data_parallel.h>
#include <tessera/nn/fully_shard.h>
#include <tessera/nn/parallelize_module.h>

namespace gpt {

using namespace tessera;

namespace {

/// Layers in pairs: the first is cut by columns, the second by rows, and what is between the two, heads
/// or features, stays cut. Outside of the pairs activations are placed as `outside` says.
nn::ParallelPlan layers_in_pairs(const Placement& outside) {
  const nn::PrepareModuleInput whole{.input_layouts = {outside},
                                     .desired_input_layouts = {Replicate()}};
  const nn::RowwiseParallel summed{.output_layouts = outside};
  return {{"blocks.*.attention", whole},
          {"blocks.*.attention.[qkv]*", nn::ColwiseParallel{}},
          {"blocks.*.attention.output", summed},
          {"blocks.*.mlp", whole},
          {"blocks.*.mlp.up", nn::ColwiseParallel{}},
          {"blocks.*.mlp.down", summed}};
}

nn::ParallelPlan plan_of(Layers layers) {
  if (layers == Layers::tensor_parallel) return layers_in_pairs(Replicate());
  // A rank holds a part of the sequence, dim 1, from the first dropout on.
  auto plan = layers_in_pairs(Shard(1));
  plan.emplace_back("dropout", nn::SequenceParallel{});
  return plan;
}

}  // namespace

const std::vector<std::string>& style_names() {
  static const std::vector<std::string> names = {"dp",    "fsdp",  "tp",      "sp",
                                                 "dp+tp", "dp+sp", "fsdp+tp", "fsdp+sp"};
  return names;
}

Style parse_style(std::string_view text) {
  const auto& names = style_names();
  TESSERA_CHECK(std::find(names.begin(), names.end(), text) != names.end(), "style '", text,
                "' given; allowed are ", joined(names));
  Style style;
  if (text.starts_with("dp")) style.batches = Batches::data_parallel;
  if (text.starts_with("fsdp")) style.batches = Batches::fully_sharded;
  if (text.ends_with("tp")) style.layers = Layers::tensor_parallel;
  if (text.ends_with("sp")) style.layers = Layers::sequence_parallel;
  return style;
}

std::string to_string(const Style& style) {
  std::string text;
  if (style.batches == Batches::data_parallel) text = "dp";
  if (style.batches == Batches::fully_sharded) text = "fsdp";
  if (style.layers != Layers::none && !text.empty()) text += '+';
  if (style.layers == Layers::tensor_parallel) text += "tp";
  if (style.layers == Layers::sequence_parallel) text += "sp";
  return text;
}

std::vector<std::string> mesh_dims_of(const Style& style) {
  std::vector<std::string> dims;
  if (style.batches != Batches::none) dims.emplace_back("dp");
  if (style.layers != Layers::none) dims.emplace_back("tp");
  return dims;
}

void spread(Gpt& model, const DeviceMesh& mesh, const Style& style) {
  const auto needed = mesh_dims_of(style);
  TESSERA_CHECK(mesh.shape().names() == needed, "style ", to_string(style), " needs a mesh of ",
                joined(needed, " and "), ", not ", mesh.shape());
  if (style.layers != Layers::none) {
    nn::parallelize_module(*model, mesh, plan_of(style.layers),
                           {.activations = nn::Activations::distributed, .mesh_dim = "tp"});
  }
  if (style.batches == Batches::fully_sharded) {
    nn::fully_shard(*model, mesh, {.mesh_dim = "dp"});
  } else {
    // Without batches over `dp` too: it sends all gradients that are sums in one message.
    nn::data_parallel(*model, mesh);
  }
}

Batch spread(const Batch& batch, const DeviceMesh& mesh) {
  Placements placements;
  for (const auto& name : mesh.shape().names()) {
    placements.push_back(name == "dp" ? Placement(Shard(0)) : Placement(Replicate()));
  }
  const DistributeOptions known{.src_data_rank = std::nullopt};
  return {distribute_tensor(batch.tokens, mesh, placements, known),
          distribute_tensor(batch.targets, mesh, placements, known)};
}

}  // namespace gpt
