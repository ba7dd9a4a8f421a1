#include "tessera/nn/sequential_element.h"

#include <tuple>

#include "tessera/base/check.h"

namespace tessera::nn::detail {
namespace {

using torch::nn::AnyValue;

template <typename... Tensors>
bool add_tuple(AnyValue& value, std::vector<at::Tensor*>& tensors) {
  auto* tuple = value.try_get<std::tuple<Tensors...>>();
  if (tuple == nullptr) return false;
  std::apply([&](auto&... items) { (tensors.push_back(&items), ...); }, *tuple);
  return true;
}

/// The tensors of a value whose type is not known: the ones that modules pass on to each other.
void add_tensors(AnyValue& value, std::vector<at::Tensor*>& tensors) {
  if (auto* tensor = value.try_get<at::Tensor>()) {
    tensors.push_back(tensor);
  } else if (auto* optional = value.try_get<std::optional<at::Tensor>>()) {
    if (optional->has_value()) tensors.push_back(&**optional);
  } else if (auto* list = value.try_get<std::vector<at::Tensor>>()) {
    for (auto& item : *list) tensors.push_back(&item);
  } else if (!add_tuple<at::Tensor, at::Tensor>(value, tensors)) {
    add_tuple<at::Tensor, at::Tensor, at::Tensor>(value, tensors);
  }
}

template <std::size_t... Index>
AnyValue call_with(torch::nn::AnyModule& module, std::vector<AnyValue>& arguments,
                   std::index_sequence<Index...>) {
  return module.any_forward(std::move(arguments[Index])...);
}

/// `any_forward` takes any number of arguments, but the compiler must know it.
template <std::size_t Count>
AnyValue call_module(torch::nn::AnyModule& module, std::vector<AnyValue>& arguments) {
  if (arguments.size() == Count) {
    return call_with(module, arguments, std::make_index_sequence<Count>());
  }
  if constexpr (Count > 0) {
    return call_module<Count - 1>(module, arguments);
  } else {
    TESSERA_CHECK(false, "a module with hooks in a Sequential got ", arguments.size(),
                  " arguments; at most 8 are allowed");
  }
}

}  // namespace

AnyValue SequentialElement::call(std::vector<AnyValue>&& arguments) {
  constexpr std::size_t kMostArguments = 8;
  std::vector<at::Tensor*> inputs;
  for (auto& argument : arguments) add_tensors(argument, inputs);
  const auto real = module_.ptr();
  run_forward_pre_hooks(*real, inputs);
  // The module may move its arguments away, and hooks are to see them afterwards.
  std::vector<AnyValue> kept = arguments;
  AnyValue result = call_module<kMostArguments>(module_, arguments);
  inputs.clear();
  for (auto& argument : kept) add_tensors(argument, inputs);
  std::vector<at::Tensor*> outputs;
  add_tensors(result, outputs);
  run_forward_hooks(*real, inputs, outputs);
  return result;
}

at::Tensor SequentialElement::forward(at::Tensor /*input*/) {
  TESSERA_INTERNAL_CHECK(false, "an element of a Sequential is called by its holder");
}

}  // namespace tessera::nn::detail
