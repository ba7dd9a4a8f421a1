#include "tessera/nn/style_actions.h"

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "tessera/base/check.h"
#include "tessera/nn/hook_points.h"
#include "tessera/nn/module_tensors.h"

namespace tessera::nn {

const char* style_name(const ParallelStyle& style) {
  struct Namer {
    const char* operator()(const ColwiseParallel&) const { return "ColwiseParallel"; }
    const char* operator()(const RowwiseParallel&) const { return "RowwiseParallel"; }
    const char* operator()(const SequenceParallel&) const { return "SequenceParallel"; }
    const char* operator()(const PrepareModuleInput&) const { return "PrepareModuleInput"; }
    const char* operator()(const PrepareModuleOutput&) const { return "PrepareModuleOutput"; }
    const char* operator()(const PrepareModuleInputOutput&) const {
      return "PrepareModuleInputOutput";
    }
  };
  return std::visit(Namer{}, style);
}

namespace detail {
namespace {

constexpr const char* kName = "parallelize_module";

using Layouts = std::vector<std::optional<Placement>>;

/// Works out one style for one module.
class StyleReader {
 public:
  StyleReader(const char* style, const ModulePlace& place, const DeviceMesh& mesh,
              std::int64_t mesh_dim, Activations activations)
      : style_(style),
        mesh_(mesh),
        mesh_dim_(mesh_dim),
        is_plain_(activations == Activations::plain),
        actions_{.place = place} {}

  StyleActions read(const ColwiseParallel& style) {
    const bool is_linear = require_layer();
    place_own("weight", is_linear ? Shard(0) : Shard(1));
    if (is_linear) place_own("bias", Shard(0));
    add_input(style.input_layouts, Replicate(), Replicate());
    add_output(style.output_layouts, Shard(-1), style.use_local_output);
    return actions_;
  }

  StyleActions read(const RowwiseParallel& style) {
    const bool is_linear = require_layer();
    place_own("weight", is_linear ? Shard(1) : Shard(0));
    if (is_linear) place_own("bias", Replicate());
    const Placement input = is_linear ? Placement(Shard(-1)) : Placement(Replicate());
    add_input(style.input_layouts, input, input);
    if (actions_.before && is_linear) {
      actions_.before->crossings[0].last_size =
          actions_.place.module->as<torch::nn::Linear>()->weight.size(1);
    }
    add_output(style.output_layouts, Replicate(), style.use_local_output);
    return actions_;
  }

  StyleActions read(const SequenceParallel& style) {
    for (const auto& own : all_tensors(*actions_.place.module)) {
      actions_.tensors.push_back(
          {joined_path(actions_.place.path, own.name), own.tensor, Replicate()});
    }
    const Placement cut = Shard(style.sequence_dim);
    actions_.before = boundary({{cut, cut}}, false);
    if (style.use_local_output) actions_.after = boundary({{std::nullopt, cut}}, true);
    return actions_;
  }

  StyleActions read(const PrepareModuleInput& style) {
    actions_.before =
        prepared("input", style.input_layouts, style.desired_input_layouts, style.use_local_output);
    return actions_;
  }

  StyleActions read(const PrepareModuleOutput& style) {
    actions_.after = prepared("output", style.output_layouts, style.desired_output_layouts,
                              style.use_local_output);
    return actions_;
  }

  StyleActions read(const PrepareModuleInputOutput& style) {
    read(style.input);
    return read(style.output);
  }

 private:
  /// True for a Linear, false for an Embedding.
  bool require_layer() const {
    const auto& module = *actions_.place.module;
    const bool is_linear = module.as<torch::nn::Linear>() != nullptr;
    TESSERA_CHECK(is_linear || module.as<torch::nn::Embedding>() != nullptr, kName, ": ", style_,
                  " is for torch::nn::Linear and torch::nn::Embedding, and ",
                  describe(actions_.place), " is neither; give the layers in it, or place its ",
                  "parameters with distribute_module");
    return is_linear;
  }

  void place_own(const std::string& name, const Placement& placement) {
    for (const auto& own : own_tensors(*actions_.place.module)) {
      if (own.name != name) continue;
      actions_.tensors.push_back({joined_path(actions_.place.path, name), own.tensor, placement});
    }
  }

  [[nodiscard]] Boundary boundary(std::vector<Crossing> crossings, bool makes_local) const {
    return {.name = concat(style_, " of ", describe(actions_.place)),
            .mesh = mesh_,
            .mesh_dim = mesh_dim_,
            .crossings = std::move(crossings),
            .makes_local = makes_local};
  }

  void add_input(const std::optional<Placement>& given, const Placement& otherwise,
                 const Placement& wanted) {
    // DTensors say how they are placed, and ops bring them where they are needed.
    if (!is_plain_ && !given) return;
    actions_.before = boundary({{given.value_or(otherwise), wanted}}, false);
  }

  void add_output(const std::optional<Placement>& given, const Placement& otherwise,
                  std::optional<bool> use_local) {
    if (!is_plain_ && !given && !use_local.value_or(false)) return;
    actions_.after =
        boundary({{std::nullopt, given.value_or(otherwise)}}, use_local.value_or(is_plain_));
  }

  [[nodiscard]] Boundary prepared(const std::string& which, const Layouts& from, const Layouts& to,
                                  bool makes_local) const {
    TESSERA_CHECK(!to.empty() && from.size() == to.size(), kName, ": ", style_, " for ",
                  describe(actions_.place), " has ", from.size(), " ", which, "_layouts and ",
                  to.size(), " desired_", which, "_layouts; give one of each per tensor");
    std::vector<Crossing> crossings;
    for (std::size_t i = 0; i < to.size(); ++i) crossings.push_back({from[i], to[i]});
    return boundary(std::move(crossings), makes_local);
  }

  const char* style_;
  const DeviceMesh& mesh_;
  std::int64_t mesh_dim_;
  bool is_plain_;
  StyleActions actions_;
};

}  // namespace

StyleActions actions_of(const ParallelStyle& style, const ModulePlace& place,
                        const DeviceMesh& mesh, std::int64_t mesh_dim, Activations activations) {
  StyleReader reader(style_name(style), place, mesh, mesh_dim, activations);
  auto actions = std::visit([&](const auto& one) { return reader.read(one); }, style);
  if (actions.before || actions.after) {
    const bool may_do_without = activations == Activations::plain;
    check_hookable(concat(kName, ": ", style_name(style)).c_str(), place,
                   may_do_without ? "; styles that state no layouts need no hooks with "
                                    "{.activations = Activations::distributed}"
                                  : "");
  }
  return actions;
}

}  // namespace detail
}  // namespace tessera::nn
