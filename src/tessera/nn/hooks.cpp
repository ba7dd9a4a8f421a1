#include "tessera/nn/hooks.h"

#include <algorithm>

#include "tessera/nn/hook_points.h"
#include "tessera/nn/module_paths.h"

namespace tessera::nn {
namespace detail {

struct HookLists {
  std::vector<std::pair<std::int64_t, ForwardPreHook>> before;
  std::vector<std::pair<std::int64_t, ForwardHook>> after;
  std::int64_t next = 1;
};

}  // namespace detail

void HookHandle::remove() {
  const auto lists = lists_.lock();
  if (lists == nullptr) return;
  const auto is_this = [&](const auto& entry) { return entry.first == number_; };
  std::erase_if(lists->before, is_this);
  std::erase_if(lists->after, is_this);
  lists_.reset();
}

Hookable::Hookable() : lists_(std::make_shared<detail::HookLists>()) {}

Hookable::Hookable(const Hookable& other)
    : lists_(std::make_shared<detail::HookLists>(*other.lists_)) {}

HookHandle Hookable::add_forward_pre_hook(ForwardPreHook hook) {
  lists_->before.emplace_back(lists_->next, std::move(hook));
  return {lists_, lists_->next++};
}

HookHandle Hookable::add_forward_hook(ForwardHook hook) {
  lists_->after.emplace_back(lists_->next, std::move(hook));
  return {lists_, lists_->next++};
}

bool Hookable::has_hooks() const { return !lists_->before.empty() || !lists_->after.empty(); }

// Hooks may add and remove hooks: the lists are copied before they are gone through.

void Hookable::run_forward_pre_hooks(torch::nn::Module& module, TensorLeaves inputs) const {
  const auto hooks = lists_->before;
  for (const auto& [number, hook] : hooks) hook(module, inputs);
}

void Hookable::run_forward_hooks(torch::nn::Module& module, TensorLeaves inputs,
                                 TensorLeaves outputs) const {
  const auto hooks = lists_->after;
  for (const auto& [number, hook] : hooks) hook(module, inputs, outputs);
}

HookHandle register_forward_pre_hook(torch::nn::Module& root, const std::string& path,
                                     ForwardPreHook hook) {
  constexpr const char* kName = "register_forward_pre_hook";
  const auto place = detail::module_at(kName, root, path);
  detail::check_hookable(kName, place);
  return detail::hook_points(place).before->add_forward_pre_hook(std::move(hook));
}

HookHandle register_forward_hook(torch::nn::Module& root, const std::string& path,
                                 ForwardHook hook) {
  constexpr const char* kName = "register_forward_hook";
  const auto place = detail::module_at(kName, root, path);
  detail::check_hookable(kName, place);
  return detail::hook_points(place).after->add_forward_hook(std::move(hook));
}

}  // namespace tessera::nn
