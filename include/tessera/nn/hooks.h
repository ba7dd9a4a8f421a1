#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace tessera::nn {

/// \file
/// Functions that run before and after a module's `forward`.
///
/// libtorch calls `forward` directly, so a module must take part: members of type
/// `Hooked<torch::nn::Linear>` (see `hooked.h`) do, and so do the elements of every
/// `torch::nn::Sequential`, whatever their type, and the Sequential itself.

/// The tensors of a module's arguments or results in order, undefined ones too; a hook may put others
/// in their place. Trees are flattened as `tree.h` says; what is no tensor does not appear.
using TensorLeaves = std::span<at::Tensor* const>;

/// Runs before `forward`.
using ForwardPreHook = std::function<void(torch::nn::Module& module, TensorLeaves inputs)>;
/// Runs after `forward`, with the inputs that it got.
using ForwardHook =
    std::function<void(torch::nn::Module& module, TensorLeaves inputs, TensorLeaves outputs)>;

namespace detail {
struct HookLists;
}

/// A hook that was added. Outlives the module safely; letting go of it leaves the hook in place.
class HookHandle {
 public:
  HookHandle() = default;
  HookHandle(const std::shared_ptr<detail::HookLists>& lists, std::int64_t number)
      : lists_(lists), number_(number) {}

  /// Takes the hook away, before its module's next call. Does nothing the second time, and when the
  /// module is gone.
  void remove();

 private:
  std::weak_ptr<detail::HookLists> lists_;
  std::int64_t number_ = 0;
};

/// What modules with hooks derive from. Hooks run in the order in which they were added. Copies have
/// the same hooks, and lists of their own.
class Hookable {
 public:
  Hookable();
  Hookable(const Hookable& other);
  Hookable(Hookable&& other) = default;
  /// The hooks stay with the object: assigning a module's state does not change who listens.
  Hookable& operator=(const Hookable&) { return *this; }
  Hookable& operator=(Hookable&&) noexcept { return *this; }
  virtual ~Hookable() = default;

  HookHandle add_forward_pre_hook(ForwardPreHook hook);
  HookHandle add_forward_hook(ForwardHook hook);
  [[nodiscard]] bool has_hooks() const;

  /// For those who call `forward`.
  void run_forward_pre_hooks(torch::nn::Module& module, TensorLeaves inputs) const;
  void run_forward_hooks(torch::nn::Module& module, TensorLeaves inputs,
                         TensorLeaves outputs) const;

 private:
  std::shared_ptr<detail::HookLists> lists_;
};

/// Adds a hook to the module at `path` below `root`, `"layers.0.fc1"`; the empty path is `root`.
///
/// Throws `InvalidArgument` when there is no such module (near names are listed), and when it cannot
/// have hooks; the message says how to change the member.
HookHandle register_forward_pre_hook(torch::nn::Module& root, const std::string& path,
                                     ForwardPreHook hook);
HookHandle register_forward_hook(torch::nn::Module& root, const std::string& path,
                                 ForwardHook hook);

}  // namespace tessera::nn
