#pragma once

#include <optional>
#include <vector>

#include "tessera/tensor/op_call.h"

namespace tessera::detail {

/// Returns the results, without data, of ops that libtorch has no kernel for that does without data:
/// pooling to a given size, convolutions, and others that rules ask about. Nothing for all other ops,
/// and for arguments that the op would refuse.
[[nodiscard]] std::optional<std::vector<at::Tensor>> stated_results(const OpCall& call);

}  // namespace tessera::detail
