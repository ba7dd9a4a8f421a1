#include "tessera/tensor/strict_mode.h"

namespace tessera {
namespace {

thread_local bool enabled = false;

}  // namespace

StrictGuard::StrictGuard(bool strict) : previous_(enabled) { enabled = strict; }

StrictGuard::~StrictGuard() { enabled = previous_; }

bool StrictGuard::is_enabled() { return enabled; }

}  // namespace tessera
