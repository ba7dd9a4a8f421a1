#include "tessera/comm/waiting.h"

#include <atomic>

namespace tessera::detail {
namespace {

std::atomic<const WaitingHooks*> waiting_hooks = nullptr;

}  // namespace

void set_waiting_hooks(const WaitingHooks* hooks) { waiting_hooks = hooks; }

Waiting::Waiting() {
  if (const auto* hooks = waiting_hooks.load()) state_ = hooks->begin();
}

Waiting::~Waiting() {
  if (state_ != nullptr) waiting_hooks.load()->end(state_);
}

}  // namespace tessera::detail
