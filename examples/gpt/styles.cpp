#include "styles.h"

#include <algorithm>

#include <tessera/base/check.h>
#include <tessera/nn/data_parallel.h>
#include <tessera/nn/fully_shard.h>
#include <tessera/nn/hooks.h>
#include <tessera/tensor/in_place.h>

namespace gpt {

using namespace tessera;

namespace {

/// As given along `tp`, Replicate along the others.
Placements along_layers(const DeviceMesh& mesh, const Placement& placement) {
  Placements placements(static_cast<std::size_t>(mesh.ndim()), Replicate());
  placements[static_cast<std::size_t>(mesh.shape().dim_named("tp"))] = placement;
  return placements;
}

void spread_layers(Gpt& model, const DeviceMesh& mesh) {
  for (auto& [name, parameter] : model->named_parameters().pairs()) {
    const auto has = [&name = name](const char* part) {
      return name.find(part) != std::string::npos;
    };
    if (has("query") || has("key") || has("value") || has("up")) {
      distribute_in_place(parameter, mesh, along_layers(mesh, Shard(0)));
    } else if (has("attention.output.weight") || has("down.weight")) {
      distribute_in_place(parameter, mesh, along_layers(mesh, Shard(1)));
    }
  }
}

/// Brings tensors to `placement` along `tp`, and leaves them as they are along the others.
void bring_to(const nn::TensorLeaves& tensors, const Placement& placement) {
  for (auto* tensor : tensors) {
    Placements placements = placements_of(*tensor);
    placements[static_cast<std::size_t>(mesh_of(*tensor).shape().dim_named("tp"))] = placement;
    *tensor = redistribute(*tensor, placements);
  }
}

/// Between layers, ranks along `tp` hold parts of the sequence; layers see all of it.
void spread_sequence(Gpt& model) {
  const auto before = [&](const std::string& path, const Placement& placement) {
    nn::register_forward_pre_hook(
        *model, path, [=](torch::nn::Module&, nn::TensorLeaves in) { bring_to(in, placement); });
  };
  const auto after = [&](const std::string& path, const Placement& placement) {
    nn::register_forward_hook(*model, path,
                              [=](torch::nn::Module&, nn::TensorLeaves, nn::TensorLeaves out) {
                                bring_to(out, placement);
                              });
  };
  before("dropout", Shard(1));
  for (const auto& [path, module] : model->named_modules().pairs()) {
    if (path.ends_with(".attention") || path.ends_with(".mlp")) before(path, Replicate());
    if (path.ends_with(".output") || path.ends_with(".down")) after(path, Shard(1));
  }
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
  if (style.layers != Layers::none) spread_layers(model, mesh);
  if (style.layers == Layers::sequence_parallel) spread_sequence(model);
  if (style.batches == Batches::fully_sharded) {
    nn::fully_shard(*model, mesh, {.mesh_dim = "dp"});
  } else {
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
