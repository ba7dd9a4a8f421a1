#include "tessera/tensor/implicit_replication.h"

#include <utility>

namespace tessera {
namespace {

thread_local bool enabled = false;

}  // namespace

ImplicitReplication::ImplicitReplication() : previous_(std::exchange(enabled, true)) {}

ImplicitReplication::~ImplicitReplication() { enabled = previous_; }

bool ImplicitReplication::is_enabled() { return enabled; }

}  // namespace tessera
