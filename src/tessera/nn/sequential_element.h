#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/any.h>

#include "tessera/nn/hooks.h"

namespace tessera::nn::detail {

/// An element of a `torch::nn::Sequential` with hooks around it.
///
/// A Sequential calls its elements by a virtual function of `AnyModuleHolder`. The holder of this
/// type, below, runs the hooks there, and to everybody else it is the module that it stands for.
class SequentialElement : public torch::nn::Module, public Hookable {
 public:
  explicit SequentialElement(torch::nn::AnyModule module) : module_(std::move(module)) {}

  [[nodiscard]] torch::nn::AnyModule& module() { return module_; }
  [[nodiscard]] torch::nn::AnyValue call(std::vector<torch::nn::AnyValue>&& arguments);

  /// What `AnyModule` goes by when it looks for a holder; nobody calls it.
  at::Tensor forward(at::Tensor input);

 private:
  torch::nn::AnyModule module_;
};

}  // namespace tessera::nn::detail

template <>
struct torch::nn::AnyModuleHolder<tessera::nn::detail::SequentialElement, at::Tensor> final
    : public torch::nn::AnyModulePlaceholder {
  using Element = tessera::nn::detail::SequentialElement;

  explicit AnyModuleHolder(std::shared_ptr<Element>&& element)
      : AnyModulePlaceholder(typeid(Element)), module(std::move(element)) {}

  AnyValue forward(std::vector<AnyValue>&& arguments) override {
    return module->call(std::move(arguments));
  }

  std::shared_ptr<Module> ptr() override { return module->module().ptr(); }

  std::unique_ptr<AnyModulePlaceholder> copy() const override {
    return std::make_unique<AnyModuleHolder>(*this);
  }

  std::unique_ptr<AnyModulePlaceholder> clone_module(std::optional<Device> device) const override {
    auto clone = std::make_shared<Element>(*module);
    clone->module() = module->module().clone(device);
    return std::make_unique<AnyModuleHolder>(std::move(clone));
  }

  std::shared_ptr<Element> module;
};
