#pragma once

#include <chrono>

namespace tessera::detail {

/// When the process began, by the host's clock; `CommRecord::begin` counts from there.
[[nodiscard]] std::chrono::nanoseconds process_begin_by_host();

}  // namespace tessera::detail
