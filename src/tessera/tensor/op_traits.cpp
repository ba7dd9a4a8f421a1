#include "tessera/tensor/op_traits.h"

#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "tessera/base/check.h"
#include "tessera/tensor/rules.h"

namespace tessera::detail {
namespace {

/// `aten::add_.Tensor` -> `add`.
std::string base_name_of(const c10::OperatorName& name, bool is_written) {
  std::string base = name.name.substr(name.name.find("::") + 2);
  const bool is_dunder = base.starts_with("__");
  if (is_written && !is_dunder && base.ends_with('_')) base.pop_back();
  // In-place operators: __iand__ writes what __and__ returns.
  if (is_written && is_dunder && base.starts_with("__i")) base.erase(2, 1);
  return base;
}

OpTraits::ArgumentKind kind_of(const c10::Argument& argument) {
  using Kind = OpTraits::ArgumentKind;
  const auto& type = *argument.type();
  if (type.isSubtypeOf(*c10::OptionalType::ofTensor())) return Kind::tensor;
  if (type.isSubtypeOf(*c10::ListType::ofTensors())) return Kind::tensor_list;
  if (type.isSubtypeOf(*c10::ListType::ofOptionalTensors())) return Kind::optional_tensor_list;
  if (const auto optional = type.cast<c10::OptionalType>()) {
    const auto& element = *optional->getElementType();
    if (element.isSubtypeOf(*c10::ListType::ofTensors())) return Kind::tensor_list;
  }
  return Kind::value;
}

/// Scalars, unless they are dims and sizes: what an element-wise op multiplies by says nothing about
/// layouts, and new values in every step would fill the cache.
bool is_free_scalar(const c10::Argument& argument) {
  auto type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::NumberType || type->kind() == c10::TypeKind::FloatType;
}

/// What an annotation says the memory is shared with; for lists, that of their elements.
const std::unordered_set<c10::Symbol>& memory_of(const c10::AliasInfo& alias) {
  return alias.containedTypes().empty() ? alias.beforeSets()
                                        : alias.containedTypes().front().beforeSets();
}

/// The collectives of `torch.distributed`. Those that return their results ask for memory, and say
/// themselves that there is none.
bool is_of_c10d(const c10::OperatorName& name) { return name.getNamespace() == "c10d"; }

/// They would write to a copy that nobody sees again.
void refuse_c10d(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TESSERA_CHECK(
      false, op.operator_name().name,
      ": a DTensor given to a collective of torch.distributed, which is for plain tensors; "
      "pass x.to_local(), or let x.redistribute(...) move what is needed");
}

OpTraits make_traits(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  OpTraits traits;
  traits.schema = &schema;
  traits.name = c10::toString(op.operator_name());
  traits.is_pointwise = op.hasTag(at::Tag::pointwise);
  traits.is_inplace_view = op.hasTag(at::Tag::inplace_view);
  traits.is_random = op.hasTag(at::Tag::nondeterministic_seeded);
  for (const auto& argument : schema.arguments()) {
    OpTraits::Argument entry;
    entry.kind = kind_of(argument);
    entry.name = argument.name();
    const auto* alias = argument.alias_info();
    entry.is_written = alias != nullptr && alias->isWrite();
    entry.is_out = entry.is_written && argument.kwarg_only();
    traits.has_written |= entry.is_written;
    traits.has_out |= entry.is_out;
    traits.arguments.push_back(std::move(entry));
  }
  for (const auto& result : schema.returns()) {
    OpTraits::Return entry;
    entry.is_list = result.type()->kind() == c10::TypeKind::ListType;
    if (const auto* alias = result.alias_info()) {
      for (std::size_t i = 0; i < traits.arguments.size(); ++i) {
        const auto* other = schema.arguments()[i].alias_info();
        if (other == nullptr || memory_of(*other) != memory_of(*alias)) continue;
        if (alias->isWrite()) entry.argument = i;
        traits.is_view |= !alias->isWrite();
      }
    }
    traits.returns.push_back(entry);
  }
  traits.base_name = base_name_of(op.operator_name(), traits.has_written);
  const bool skips_scalars = traits.is_pointwise || traits.base_name.starts_with("_foreach") ||
                             traits.base_name.starts_with("_fused");
  for (std::size_t i = 0; i < traits.arguments.size(); ++i) {
    if (skips_scalars && is_free_scalar(schema.arguments()[i]))
      traits.arguments[i].is_in_key = false;
  }
  traits.rule = find_rule(traits);
  traits.kernel = is_of_c10d(op.operator_name()) ? &refuse_c10d : find_kernel(traits);
  return traits;
}

}  // namespace

const OpTraits& traits_of(const c10::OperatorHandle& op) {
  // By rank: no lock, and the schema's address is its op's identity.
  thread_local std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<OpTraits>> known;
  auto& traits = known[&op.schema()];
  if (traits == nullptr) traits = std::make_unique<OpTraits>(make_traits(op));
  return *traits;
}

}  // namespace tessera::detail
