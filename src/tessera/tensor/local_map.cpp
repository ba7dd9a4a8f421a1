#include "tessera/tensor/local_map.h"

#include <algorithm>
#include <utility>

#include <c10/core/GradMode.h>

#include "tessera/base/check.h"
#include "tessera/comm/claims.h"
#include "tessera/comm/pending_tensor.h"
#include "tessera/comm/recorder.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/dtensor_meta.h"
#include "tessera/tensor/global_shape.h"
#include "tessera/tensor/local_map_check.h"
#include "tessera/tensor/local_map_gradient.h"
#include "tessera/tensor/op_call.h"

namespace tessera {

const char* to_string(LeafKind kind) {
  switch (kind) {
    case LeafKind::tensor:
      return "a tensor";
    case LeafKind::none:
      return "nothing";
    case LeafKind::boolean:
      return "a bool";
    case LeafKind::number:
      return "a number";
    case LeafKind::string:
      return "a string";
    case LeafKind::other:
      return "an object";
  }
  return "";
}

namespace detail {

void throw_wrong_number_of_tensors(std::size_t given, std::size_t wanted) {
  throw_invalid_argument(
      concat("rebuild: ", given, " tensor(s) given for a tree of ", wanted, "; pass one for each"));
}

namespace {

void check_length(const char* name, std::size_t given, std::size_t leaves) {
  TESSERA_CHECK(
      given == 0 || given == leaves, "local_map: ", name, " length ", given,
      " does not match the number of input args ", leaves,
      "; pass one entry for each leaf of the arguments, std::nullopt for those that are no "
      "tensors");
}

/// True when every tensor dim is cut from left to right, as a list of placements says.
bool is_in_order(const Layout& layout) {
  for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
    const auto cuts = layout.splits(dim);
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      if (cuts[i].mesh_dim < cuts[i - 1].mesh_dim) return false;
    }
  }
  return true;
}

/// True when all ranks hold equally much.
bool is_even(const Layout& layout) {
  for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
    std::int64_t size = layout.shape()[static_cast<std::size_t>(dim)];
    for (const auto& cut : layout.splits(dim)) {
      if (size % (cut.count * cut.pieces) != 0) return false;
      size /= cut.count;
    }
  }
  return true;
}

/// True when a dim of one of the layouts, all of them even, is cut by `mesh_dims` into `count` parts
/// of `size`.
bool is_size_of_input(const c10::SmallVectorImpl<Layout>& layouts, MeshDims mesh_dims,
                      std::int64_t count, std::int64_t size) {
  for (const auto& layout : layouts) {
    for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
      MeshDims cut_by = 0;
      for (const auto& cut : layout.splits(dim)) cut_by |= mesh_dim_bit(cut.mesh_dim);
      if (cut_by == mesh_dims && layout.shape()[static_cast<std::size_t>(dim)] == size * count) {
        return true;
      }
    }
  }
  return false;
}

std::string shown(const LeafPlacements& entry) {
  return entry.has_value() ? to_string(*entry) : "None";
}

}  // namespace

/// What is to be done with an argument.
struct LocalMapCall::Input {
  /// Null for everything but DTensors.
  DTensorMeta* meta = nullptr;
  /// Where it must go first, if it must.
  std::optional<Layout> target;
  std::optional<Layout> gradient;
};

LocalMapCall::LocalMapCall(const LocalMapOptions& options, const MappedLeaves& inputs)
    : options_(&options) {
  check_length("in_placements", options.in_placements.size(), inputs.size());
  check_length("in_grad_placements", options.in_grad_placements.size(), inputs.size());
  find_mesh(inputs);
  c10::SmallVector<Input, 8> checked;
  checked.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) check_input(i, inputs[i], checked[i]);
  if (mesh_) check_out_placements();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].kind == LeafKind::tensor) unwrap(checked[i], *inputs[i].tensor);
  }
}

void LocalMapCall::find_mesh(const MappedLeaves& inputs) {
  bool is_any_distributed = false;
  mesh_ = options_->mesh;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].kind != LeafKind::tensor) continue;
    const auto* meta = dtensor_meta(*inputs[i].tensor);
    if (meta == nullptr) continue;
    is_any_distributed = true;
    if (!mesh_) mesh_ = meta->mesh();
    TESSERA_CHECK(meta->mesh() == *mesh_, "local_map: input ", i, ", ",
                  describe_tensor(*inputs[i].tensor), ", is on ", meta->mesh(),
                  options_->mesh ? ", but the mesh given is " : ", but inputs before it are on ",
                  *mesh_, "; all DTensors must be on one mesh: redistribute it first");
  }
  if (!is_any_distributed) {
    if (options_->without_dtensors == WithoutDTensors::plain_results) mesh_.reset();
    const bool is_wrapping =
        options_->without_dtensors == WithoutDTensors::wrap_if_mesh &&
        std::any_of(options_->out_placements.begin(), options_->out_placements.end(),
                    [](const LeafPlacements& entry) { return entry.has_value(); });
    TESSERA_CHECK(mesh_ || !is_wrapping,
                  "local_map: out_placements given, but neither a DTensor nor a mesh; pass .mesh "
                  "(process_mesh) to wrap results of plain inputs");
  }
  if (!mesh_) return;
  TESSERA_CHECK(mesh_->shape().contains(mesh_->world().rank()), "local_map: rank ",
                mesh_->world().rank(), " is outside of ", *mesh_,
                " and has no parts to call the function with; call it on the mesh's ranks only");
}

void LocalMapCall::check_input(std::size_t index, const MappedLeaf& leaf, Input& input) const {
  const auto* required =
      options_->in_placements.empty() ? nullptr : &options_->in_placements[index];
  const auto* gradient =
      options_->in_grad_placements.empty() ? nullptr : &options_->in_grad_placements[index];
  if (leaf.kind != LeafKind::tensor) {
    TESSERA_CHECK(required == nullptr || !required->has_value(), "local_map: Non-Tensor input ",
                  index, " (", to_string(leaf.kind), ") expects None placements but received ",
                  shown(*required), "; write std::nullopt for it in in_placements");
    TESSERA_CHECK(gradient == nullptr || !gradient->has_value(), "local_map: Non-Tensor input ",
                  index, " (", to_string(leaf.kind),
                  ") expects None in grad placements but received ", shown(*gradient),
                  "; write std::nullopt for it in in_grad_placements");
    return;
  }
  input.meta = dtensor_meta(*leaf.tensor);
  if (input.meta == nullptr) return;
  const Layout& layout = input.meta->layout();
  if (required != nullptr) {
    TESSERA_CHECK(required->has_value(), "local_map: DTensor input ", index, ", ",
                  describe_tensor(*leaf.tensor),
                  ", expects placements but received None; give its entry in in_placements");
    if (layout.placements() != **required || !is_in_order(layout)) {
      input.target = checked_layout("local_map: in_placements", *mesh_, **required, layout.shape());
      if (*input.target == layout) input.target.reset();
    }
    TESSERA_CHECK(!input.target || options_->redistribute_inputs, "local_map: input ", index,
                  " has mismatched placements: it is ", layout, ", but in_placements ask for ",
                  *input.target,
                  "; redistribute it first, or set redistribute_inputs=True to have that done");
  }
  if (gradient == nullptr) return;
  TESSERA_CHECK(gradient->has_value(), "local_map: DTensor input ", index, ", ",
                describe_tensor(*leaf.tensor),
                ", expects in grad placements but received None; give its entry in "
                "in_grad_placements, or leave them all out");
  input.gradient =
      checked_layout("local_map: in_grad_placements", *mesh_, **gradient, layout.shape());
  check_input_gradient(index, input.target ? *input.target : layout, *input.gradient);
}

void LocalMapCall::check_out_placements() const {
  for (const auto& entry : options_->out_placements) {
    if (entry.has_value()) check_placements(*mesh_, *entry);
  }
}

void LocalMapCall::unwrap(const Input& input, at::Tensor& tensor) {
  if (input.meta == nullptr) {
    settle(tensor);
    return;
  }
  const Layout layout = input.target ? *input.target : input.meta->layout();
  if (input.target) {
    const CauseScope cause([&] {
      return concat("local_map input ", input.meta->layout().placements_text(), " -> ",
                    layout.placements_text());
    });
    tensor = move(tensor, *mesh_, layout);
  }
  const bool has_history = at::GradMode::is_enabled() && tensor.requires_grad();
  const Layout gradient = input.gradient ? *input.gradient
                          : has_history  ? input_gradient(layout)
                                         : layout;
  tensor = unwrap_local(tensor, gradient);
  settle(tensor);
  if (has_history) tensor = with_gradient_of_input(tensor, layout);
  if (input.gradient) redundant_dims_ |= replicated_dims(layout) & replicated_dims(gradient);
  layouts_.push_back(layout);
}

const LeafPlacements* LocalMapCall::out_entry(std::size_t index) const {
  const auto& entries = options_->out_placements;
  if (entries.empty()) return nullptr;
  const auto& entry = entries[entries.size() == 1 ? 0 : index];
  return entry.has_value() ? &entry : nullptr;
}

const LeafShape* LocalMapCall::out_shape(std::size_t index) const {
  const auto& shapes = options_->out_shapes;
  return shapes.empty() ? nullptr : &shapes[shapes.size() == 1 ? 0 : index];
}

void LocalMapCall::wrap(const MappedLeaves& outputs) const {
  if (!mesh_) return;
  OutLayouts layouts(outputs.size());
  if (options_->check_outputs) {
    find_layouts_together(outputs, layouts);
  } else {
    check_outputs(outputs);
    find_layouts(outputs, layouts);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (layouts[i]) *outputs[i].tensor = wrapped(*outputs[i].tensor, *layouts[i]);
  }
}

void LocalMapCall::check_outputs(const MappedLeaves& outputs) const {
  const std::size_t entries = options_->out_placements.size();
  TESSERA_CHECK(entries <= 1 || entries == outputs.size(),
                "local_map requires one PlacementType be provided for each output value, received ",
                entries, " out_placements but ", outputs.size(),
                " is expected; pass one entry for each leaf of the result, or one for all");
  const std::size_t shapes = options_->out_shapes.size();
  TESSERA_CHECK(shapes <= 1 || shapes == outputs.size(), "local_map: ", shapes,
                " out_shapes given for ", outputs.size(),
                " output value(s); pass one entry for each leaf of the result, or one for all");
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_output(i, outputs[i], out_entry(i), *mesh_);
  }
}

void LocalMapCall::find_layouts(const MappedLeaves& outputs, OutLayouts& layouts) const {
  std::vector<AskedOutput> asked;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].kind != LeafKind::tensor) continue;
    const at::Tensor& local = *outputs[i].tensor;
    layouts[i] = known_layout(i, local, **out_entry(i));
    claim(*mesh_, {static_cast<std::int64_t>(i), local.scalar_type(), layouts[i]});
    if (!layouts[i]) asked.push_back({i, &local, &**out_entry(i), nullptr});
  }
  if (asked.empty()) return;
  for (auto& [index, layout] : layouts_of_parts(asked, *mesh_)) layouts[index] = layout;
}

void LocalMapCall::find_layouts_together(const MappedLeaves& outputs, OutLayouts& layouts) const {
  // Whatever is wrong here may be right on other ranks, who must hear of it.
  std::string problem;
  try {
    check_outputs(outputs);
  } catch (const InvalidArgument& error) {
    problem = error.what();
  }
  std::vector<AskedOutput> asked;
  for (std::size_t i = 0; i < outputs.size() && problem.empty(); ++i) {
    if (outputs[i].kind != LeafKind::tensor) continue;
    const LeafShape* shape = out_shape(i);
    const bool is_given = shape != nullptr && shape->has_value();
    asked.push_back({i, outputs[i].tensor, &**out_entry(i), is_given ? &**shape : nullptr});
  }
  for (auto& [index, layout] : compare_outputs(outputs, asked, problem, *mesh_)) {
    layouts[index] = layout;
  }
}

at::Tensor LocalMapCall::wrapped(const at::Tensor& local, const Layout& layout) const {
  if (!at::GradMode::is_enabled() || !local.requires_grad()) {
    return wrap_local(local, *mesh_, layout, layout);
  }
  return wrap_local(with_gradient_of_output(local, layout), *mesh_, layout,
                    output_gradient(layout, redundant_dims_));
}

std::optional<Layout> LocalMapCall::known_layout(std::size_t index, const at::Tensor& local,
                                                 const Placements& placements) const {
  if (const LeafShape* given = out_shape(index)) {
    if (!given->has_value()) return std::nullopt;
    Layout layout = checked_layout("local_map: out_shapes", *mesh_, placements, **given);
    const std::string name = concat("local_map: output ", index);
    check_local_shape(name.c_str(), local, *mesh_, layout);
    return layout;
  }
  const auto shape = shape_like_inputs(local, placements);
  if (!shape) return std::nullopt;
  if (auto layout = input_layout(*shape, placements)) return layout;
  return checked_layout("local_map: out_placements", *mesh_, placements,
                        Shape(shape->begin(), shape->end()));
}

std::optional<Layout> LocalMapCall::input_layout(at::IntArrayRef shape,
                                                 const Placements& placements) const {
  for (const auto& layout : layouts_) {
    if (at::IntArrayRef(layout.shape()) == shape && layout.placements() == placements &&
        is_in_order(layout)) {
      return layout;
    }
  }
  return std::nullopt;
}

// Where all ranks hold equally large parts of the inputs, a function that looks at sizes alone returns
// equally large parts: all ranks find the same here, be it a shape or that they must ask. One that
// looks at values or at its rank may give them different answers. Each of them claims its own
// (Note [Claims]), so that they notice before they communicate again.
std::optional<LocalMapCall::Sizes> LocalMapCall::shape_like_inputs(
    const at::Tensor& local, const Placements& placements) const {
  Sizes shape(local.sizes().begin(), local.sizes().end());
  c10::SmallVector<MeshDims, 8> cut_by(shape.size(), 0);
  bool is_cut = false;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const auto mesh_dim = static_cast<std::int64_t>(i);
    if (!is_sharded(placements[i]) || mesh_->size(mesh_dim) == 1) continue;
    const auto* shard = std::get_if<Shard>(&placements[i]);
    if (shard == nullptr) return std::nullopt;
    const std::int64_t dim = shard->dim < 0 ? shard->dim + local.dim() : shard->dim;
    cut_by[static_cast<std::size_t>(dim)] |= mesh_dim_bit(mesh_dim);
    shape[static_cast<std::size_t>(dim)] *= mesh_->size(mesh_dim);
    is_cut = true;
  }
  if (!is_cut) return shape;
  if (!std::all_of(layouts_.begin(), layouts_.end(), is_even)) return std::nullopt;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (cut_by[dim] == 0) continue;
    const std::int64_t size = local.size(static_cast<std::int64_t>(dim));
    const std::int64_t count = size == 0 ? 1 : shape[dim] / size;
    if (!is_size_of_input(layouts_, cut_by[dim], count, size)) return std::nullopt;
  }
  return shape;
}

}  // namespace detail
}  // namespace tessera
