#pragma once

#include <string_view>

namespace tessera::nn::detail {

/// Returns whether a pattern stands for a path; see `ParallelPlan` for what patterns are.
///
/// Throws `InvalidArgument` for a `[` without `]`.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view path);

}  // namespace tessera::nn::detail
