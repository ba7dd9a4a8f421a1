#include "tessera/tensor/fallback_log.h"

#include <utility>

namespace tessera::detail {
namespace {

thread_local FallbackLog* current_log = nullptr;

}  // namespace

FallbackLog::FallbackLog() : previous_(std::exchange(current_log, this)) {}

FallbackLog::~FallbackLog() { current_log = previous_; }

void FallbackLog::note(std::string_view op) {
  if (current_log != nullptr) current_log->ops_.emplace_back(op);
}

}  // namespace tessera::detail
