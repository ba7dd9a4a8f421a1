#pragma once

#include <cstdint>

namespace tessera {

/// Returns a / b rounded up. Needs a >= 0 and b >= 1; does not overflow.
[[nodiscard]] constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace tessera
