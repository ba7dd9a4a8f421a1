#pragma once

namespace tessera::detail {

/// Replaces the few composite functions of libtorch that read memory of tensors because those are on
/// the CPU, by ones that reach the same results through operations.
void override_composites();

}  // namespace tessera::detail
