#pragma once

#include <cstdint>

namespace tessera::test {

/// Returns how many allocations by `new` are alive, in a program that links allocation_count.cpp.
[[nodiscard]] std::int64_t live_allocations();

/// Returns how many there have been on the calling thread.
[[nodiscard]] std::int64_t allocations_so_far();

}  // namespace tessera::test
