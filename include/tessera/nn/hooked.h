#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "tessera/nn/hooks.h"
#include "tessera/tensor/tree.h"

namespace tessera::nn {

namespace detail {

/// An argument during a call: trees of tensors are copied, so that hooks can put others in.
template <typename Arg>
using HookedArg = std::conditional_t<tessera::detail::holds_tensors<std::remove_cvref_t<Arg>>(),
                                     std::remove_cvref_t<Arg>, Arg&&>;

template <typename Tree>
void collect_tensors(Tree& tree, std::vector<at::Tensor*>& tensors) {
  if constexpr (tessera::detail::holds_tensors<std::remove_cvref_t<Tree>>()) {
    auto visit = [&](LeafKind /*kind*/, at::Tensor* tensor) {
      if (tensor != nullptr) tensors.push_back(tensor);
    };
    tessera::detail::visit_leaves(tree, visit);
  }
}

// What follows is outside of the classes below: names in them could hide those of the modules that
// they derive from.

/// Calls `call` with `held`, between the hooks.
template <typename Result, typename Call, typename... Held>
Result call_with_hooks(torch::nn::Module& module, const Hookable& hooks, const Call& call,
                       Held&... held) {
  std::vector<at::Tensor*> inputs;
  (collect_tensors(held, inputs), ...);
  hooks.run_forward_pre_hooks(module, inputs);
  Result result = call();
  std::vector<at::Tensor*> outputs;
  collect_tensors(result, outputs);
  hooks.run_forward_hooks(module, inputs, outputs);
  return result;
}

/// Calls `forward` with the arguments that `populate` makes of those that are given.
template <typename... Args, std::size_t... Given, std::size_t... All, typename Forward,
          typename Populate, typename... Values>
auto call_with_defaults(std::index_sequence<Given...>, std::index_sequence<All...>,
                        const Forward& forward, const Populate& populate, Values&&... values) {
  using Types = std::tuple<std::decay_t<Args>...>;
  std::vector<torch::nn::AnyValue> arguments;
  (arguments.emplace_back(std::tuple_element_t<Given, Types>(std::forward<Values>(values))), ...);
  arguments = populate(std::move(arguments));
  return forward(arguments[All].template get<std::tuple_element_t<All, Types>>()...);
}

/// Returns a deep copy of a module with hooks.
template <typename Impl, typename WithHooks>
std::shared_ptr<torch::nn::Module> cloned(const WithHooks& module,
                                          const std::shared_ptr<torch::nn::Module>& plain) {
  auto copy = std::make_shared<WithHooks>(module);
  static_cast<Impl&>(*copy) = dynamic_cast<const Impl&>(*plain);
  return copy;
}

/// `Impl` with a `forward` that runs hooks.
template <typename Impl, typename Result, typename... Args>
class HookedForward : public Impl, public Hookable {
 public:
  using Impl::Impl;
  HookedForward() = default;
  /// The same module with hooks; shares its tensors.
  explicit HookedForward(const Impl& impl) : Impl(impl) {}

  Result forward(Args... call_args) {
    if (!has_hooks()) return Impl::forward(std::forward<Args>(call_args)...);
    return forward_between_hooks(std::forward<Args>(call_args)...);
  }

  /// `forward` with as many arguments as are given; the others have the values that the module
  /// declares by `FORWARD_HAS_DEFAULT_ARGS`.
  template <typename... Given>
  Result forward_with_defaults(Given&&... call_args) {
    static_assert(sizeof...(Given) <= sizeof...(Args), "forward takes fewer arguments");
    if constexpr (sizeof...(Given) == sizeof...(Args)) {
      return forward(std::forward<Given>(call_args)...);
    } else {
      return call_with_defaults<Args...>(
          std::index_sequence_for<Given...>(), std::index_sequence_for<Args...>(),
          [this](auto&&... all) -> Result { return forward(std::forward<decltype(all)>(all)...); },
          [this](std::vector<torch::nn::AnyValue>&& some) {
            return this->_forward_populate_default_args(std::move(some));
          },
          std::forward<Given>(call_args)...);
    }
  }

 private:
  Result forward_between_hooks(HookedArg<Args>... call_args) {
    return call_with_hooks<Result>(
        *this, *this, [&]() -> Result { return Impl::forward(static_cast<Args>(call_args)...); },
        call_args...);
  }
};

template <typename Impl, typename Signature>
struct HookedForwardOf;
template <typename Impl, typename Class, typename Result, typename... Args>
struct HookedForwardOf<Impl, Result (Class::*)(Args...)> {
  using type = HookedForward<Impl, Result, Args...>;
};
template <typename Impl, typename Class, typename Result, typename... Args>
struct HookedForwardOf<Impl, Result (Class::*)(Args...) const> {
  using type = HookedForward<Impl, Result, Args...>;
};

template <typename Impl>
concept HasOneForward = requires {
  &Impl::forward;
};

}  // namespace detail

/// The module `Impl` with hooks: `HookedImpl<torch::nn::LinearImpl>` is a `torch::nn::LinearImpl`.
///
/// `Impl` must have one `forward`, not a template and not overloaded. `forward` of the base class,
/// called through a reference to it, runs no hooks.
template <typename Impl>
class HookedImpl : public detail::HookedForwardOf<Impl, decltype(&Impl::forward)>::type {
  using Base = typename detail::HookedForwardOf<Impl, decltype(&Impl::forward)>::type;

 public:
  using Base::Base;
  HookedImpl() = default;

  /// A deep copy, with the same hooks. (A copy of a module that has this one as a child has none:
  /// libtorch makes the child anew.)
  [[nodiscard]] std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override {
    return detail::cloned<Impl>(*this, Impl::clone(device));
  }
};

/// A drop-in for the holder `Holder` whose module has hooks:
///
///     struct NetImpl : torch::nn::Module {
///       tessera::nn::Hooked<torch::nn::Linear> fc{nullptr};
///       NetImpl() { fc = register_module("fc", tessera::nn::Hooked<torch::nn::Linear>(16, 32)); }
///       at::Tensor forward(const at::Tensor& x) { return fc(x); }
///     };
///
/// It is made, called, printed, cloned, saved and put into containers as `Holder` is.
template <typename Holder>
class Hooked : public torch::nn::ModuleHolder<HookedImpl<typename Holder::ContainedType>> {
  static_assert(detail::HasOneForward<typename Holder::ContainedType>,
                "Hooked needs a module with one forward that is neither overloaded nor a template; "
                "torch::nn::Sequential has hooks without Hooked");

 public:
  using Impl = HookedImpl<typename Holder::ContainedType>;
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;

  /// Calls `forward`. Arguments that the module has defaults for may be left out.
  template <typename... Args>
  auto operator()(Args&&... args) {
    return this->get()->forward_with_defaults(std::forward<Args>(args)...);
  }
};

}  // namespace tessera::nn
