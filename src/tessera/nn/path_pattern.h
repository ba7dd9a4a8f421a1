#pragma once

#include <string_view>

namespace tessera::nn::detail {

/// Throws `InvalidArgument` that names `function` for a pattern with a `[` without `]`.
void check_pattern(const char* function, std::string_view pattern);

/// Returns whether a pattern stands for a path; see `ParallelPlan` for what patterns are. One that
/// `check_pattern` refuses stands for nothing.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view path);

}  // namespace tessera::nn::detail
