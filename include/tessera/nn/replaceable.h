#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include "tessera/nn/hooked.h"

namespace tessera::nn {

/// What modules derive from whose calls can go to another module.
///
/// A member of a module, `torch::nn::Linear fc`, is a pointer that nobody else can change. So a member
/// whose module may be replaced is declared as `Replaceable<torch::nn::Linear> fc`: it stays where it
/// is and passes its calls on.
class ReplaceableModule {
 public:
  virtual ~ReplaceableModule() = default;

  /// Passes all calls on to `module` from now on. Its `forward` must take the same arguments and
  /// return the same, which is found out when it is called.
  void replace_with(torch::nn::AnyModule module) { stand_in_ = std::move(module); }
  [[nodiscard]] const torch::nn::AnyModule& stand_in() const { return stand_in_; }

 protected:
  torch::nn::AnyModule stand_in_;
};

namespace detail {

/// `Impl` with a `forward` that can be passed on.
template <typename Impl, typename Result, typename... Args>
class ReplaceableForward : public Impl, public ReplaceableModule {
 public:
  using Impl::Impl;
  ReplaceableForward() = default;

  Result forward(Args... args) {
    if (stand_in_.is_empty()) return Impl::forward(std::forward<Args>(args)...);
    return stand_in_.template forward<Result>(std::forward<Args>(args)...);
  }
};

template <typename Impl, typename Signature>
struct ReplaceableForwardOf;
template <typename Impl, typename Class, typename Result, typename... Args>
struct ReplaceableForwardOf<Impl, Result (Class::*)(Args...)> {
  using type = ReplaceableForward<Impl, Result, Args...>;
};

}  // namespace detail

/// The module `Impl`, or what was put in its place.
template <typename Impl>
class ReplaceableImpl : public detail::ReplaceableForwardOf<Impl, decltype(&Impl::forward)>::type {
  using Base = typename detail::ReplaceableForwardOf<Impl, decltype(&Impl::forward)>::type;

 public:
  using Base::Base;
  ReplaceableImpl() = default;

  /// A deep copy, of the module that stands in for it too.
  [[nodiscard]] std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override {
    const auto plain = std::dynamic_pointer_cast<Impl>(Impl::clone(device));
    auto copy = std::make_shared<ReplaceableImpl>(*this);
    static_cast<Impl&>(*copy) = *plain;
    if (!this->stand_in_.is_empty()) copy->replace_with(this->stand_in_.clone(device));
    return copy;
  }
};

/// A drop-in for the holder `Holder` whose module can be replaced; it has hooks too, which stay:
///
///     tessera::nn::Replaceable<torch::nn::EmbeddingBag> table{nullptr};
///     table = register_module("table", tessera::nn::Replaceable<torch::nn::EmbeddingBag>(1000, 16));
template <typename Holder>
class Replaceable
    : public torch::nn::ModuleHolder<HookedImpl<ReplaceableImpl<typename Holder::ContainedType>>> {
  static_assert(detail::HasOneForward<typename Holder::ContainedType>,
                "Replaceable needs a module with one forward, neither overloaded nor a template");

 public:
  using Impl = HookedImpl<ReplaceableImpl<typename Holder::ContainedType>>;
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;

  /// Calls `forward`. Arguments that the module has defaults for may be left out.
  template <typename... Args>
  auto operator()(Args&&... args) {
    return this->get()->forward_with_defaults(std::forward<Args>(args)...);
  }
};

}  // namespace tessera::nn
