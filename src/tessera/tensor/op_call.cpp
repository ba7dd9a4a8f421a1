#include "tessera/tensor/op_call.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera::detail {
namespace {

/// Visits every tensor of a call with its argument and its place in a list.
template <typename Visit>
void visit_tensors(const OpTraits& traits, std::span<const c10::IValue> arguments,
                   const Visit& visit) {
  using Kind = OpTraits::ArgumentKind;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = arguments[i];
    const Kind kind = traits.arguments[i].kind;
    if (kind == Kind::value || value.isNone()) continue;
    if (kind == Kind::tensor) {
      visit(i, std::nullopt, value.toTensor());
    } else if (value.isTensorList()) {
      const auto list = value.toTensorList();
      for (std::size_t e = 0; e < list.size(); ++e) visit(i, e, static_cast<at::Tensor>(list[e]));
    } else {
      const auto list = value.toOptionalTensorList();
      for (std::size_t e = 0; e < list.size(); ++e) {
        const std::optional<at::Tensor> element = list[e];
        if (element.has_value()) visit(i, e, *element);
      }
    }
  }
}

// Note [Gathered on use]
//
// A fully sharded parameter is kept in parts along some mesh dims, and is whole there while it is
// used. Autograd is above us: it saves the parameter, not what an op gathers. So it is enough that an
// op counts such an input as replicated along those mesh dims when it chooses layouts: it then leaves
// the other inputs where they are, gathers this one, computes, and drops it again; the formula of the
// gradient meets the same parameter and gathers again. No module has to be hooked, and at most the
// inputs of one op are whole at a time.
//
// This holds where such a parameter meets other tensors. Alone, or with its like, it counts as it is
// (`zeros_like`, norms); so it does where something is written, as in an optimizer's step. Views of it
// inherit the property, since `linear` transposes weights before it multiplies.

/// The layout that a tensor has once it was gathered.
Layout gathered_layout(const DTensorMeta& meta) {
  if (meta.gathered_dims() == 0) return meta.layout();
  Placements placements = meta.layout().placements();
  for (std::size_t i = 0; i < placements.size(); ++i) {
    if ((meta.gathered_dims() >> i & 1U) != 0 && is_sharded(placements[i])) {
      placements[i] = Replicate();
    }
  }
  return Layout(meta.layout().mesh(), std::move(placements), meta.layout().shape());
}

}  // namespace

OpCall::OpCall(const OpTraits& traits, std::span<const c10::IValue> arguments)
    : traits_(&traits), arguments_(arguments) {
  visit_tensors(traits, arguments,
                [this](std::size_t argument, std::optional<std::size_t> element,
                       const at::Tensor& tensor) { add(argument, element, tensor); });
  TESSERA_INTERNAL_CHECK(mesh_ != nullptr, traits.name, " was called without a DTensor");
  check_meshes();
  check_plain();
  gathers_ = !traits.has_written && !traits.is_view &&
             std::any_of(inputs_.begin(), inputs_.end(), [](const CallTensor& entry) {
               return entry.meta != nullptr && entry.meta->gathered_dims() == 0;
             });
}

void OpCall::add(std::size_t argument, std::optional<std::size_t> element,
                 const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  const auto& traits = traits_->arguments[argument];
  CallTensor entry{.argument = argument,
                   .element = element,
                   .tensor = tensor,
                   .meta = dtensor_meta(tensor),
                   .is_written = traits.is_written};
  if (mesh_ == nullptr && entry.meta != nullptr) mesh_ = &entry.meta->mesh();
  (traits.is_out ? outs_ : inputs_).push_back(std::move(entry));
}

void OpCall::check_meshes() const {
  for (const auto* list : {&inputs_, &outs_}) {
    for (const auto& entry : *list) {
      if (entry.meta == nullptr) continue;
      TESSERA_CHECK(
          entry.meta->mesh() == *mesh_, traits_->name, ": argument '",
          traits_->arguments[entry.argument].name, "' is on ", entry.meta->mesh(),
          ", another one on ", *mesh_,
          "; all DTensors of an operation must be on the same mesh: redistribute(x, mesh, "
          "placements) moves them");
    }
  }
}

void OpCall::check_plain() const {
  for (const auto* list : {&inputs_, &outs_}) {
    for (const auto& entry : *list) {
      if (entry.meta != nullptr || (entry.tensor.numel() == 1 && !entry.is_written)) continue;
      TESSERA_CHECK(false, traits_->name, ": got mixed torch.Tensor and DTensor: argument '",
                    traits_->arguments[entry.argument].name, "' is a plain tensor ",
                    describe_tensor(entry.tensor), ", others are DTensors on ", *mesh_,
                    "; make it one with distribute_tensor or from_local, or take the parts of the "
                    "others with to_local (only plain tensors of one element may be mixed in)");
    }
  }
}

Shape OpCall::shape(std::size_t input) const { return inputs_[input].tensor.sizes().vec(); }

std::vector<Shape> OpCall::shapes() const {
  std::vector<Shape> shapes;
  shapes.reserve(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i) shapes.push_back(shape(i));
  return shapes;
}

Layout OpCall::layout(std::size_t input) const {
  const auto& entry = inputs_[input];
  if (entry.meta == nullptr) return replicated(entry.tensor);
  return gathers_ ? gathered_layout(*entry.meta) : entry.meta->layout();
}

bool OpCall::is_gathered(std::size_t input, const Layout& needed) const {
  const auto& entry = inputs_[input];
  return gathers_ && entry.meta != nullptr && entry.meta->gathered_dims() != 0 &&
         gathered_layout(*entry.meta).equivalent(needed);
}

Layout OpCall::replicated(const at::Tensor& tensor) const {
  return Layout(mesh_->shape(), Placements(static_cast<std::size_t>(mesh_->ndim()), Replicate()),
                tensor.sizes().vec());
}

std::optional<std::int64_t> OpCall::position() const {
  return mesh_->shape().position_of(mesh_->world().rank());
}

const c10::IValue& OpCall::argument(std::string_view name) const {
  return arguments_[index_of(name)];
}

std::size_t OpCall::index_of(std::string_view name) const {
  const auto& all = traits_->arguments;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& argument) { return argument.name == name; });
  TESSERA_INTERNAL_CHECK(found != all.end(), traits_->name, " has no argument '", name, "'");
  return static_cast<std::size_t>(found - all.begin());
}

bool OpCall::has_argument(std::string_view name) const {
  const auto& all = traits_->arguments;
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& argument) { return argument.name == name; });
}

std::optional<std::size_t> OpCall::input_of(std::string_view name) const {
  if (!has_argument(name)) return std::nullopt;
  const std::size_t argument = index_of(name);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].argument == argument) return i;
  }
  return std::nullopt;
}

std::string OpCall::to_string() const {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < traits_->arguments.size(); ++i) {
    using Kind = OpTraits::ArgumentKind;
    if (traits_->arguments[i].kind == Kind::value) {
      continue;
    }
    std::vector<std::string> tensors;
    for (const auto* list : {&inputs_, &outs_}) {
      for (const auto& entry : *list) {
        if (entry.argument == i) tensors.push_back(describe_tensor(entry.tensor));
      }
    }
    const bool is_list = traits_->arguments[i].kind != Kind::tensor;
    parts.push_back(is_list ? concat('{', joined(tensors), '}') : joined(tensors));
    if (parts.back().empty()) parts.back() = "none";
  }
  return concat(traits_->name, '(', joined(parts), ") on ", mesh_->shape());
}

std::string describe_tensor(const at::Tensor& tensor) {
  const std::string text =
      concat(short_name(tensor.scalar_type()), '[', joined(tensor.sizes(), ","), ']');
  const auto* meta = dtensor_meta(tensor);
  return meta != nullptr ? text + meta->layout().placements_text() : text + " (plain)";
}

std::string short_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kByte:
      return "u8";
    case at::kChar:
      return "i8";
    case at::kShort:
      return "i16";
    case at::kInt:
      return "i32";
    case at::kLong:
      return "i64";
    case at::kBool:
      return "bool";
    case at::kComplexFloat:
      return "c64";
    case at::kComplexDouble:
      return "c128";
    default:
      return c10::toString(dtype);
  }
}

}  // namespace tessera::detail
