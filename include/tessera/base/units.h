#pragma once

#include <cstdint>
#include <string>

namespace tessera {

/// Returns a number of bytes for people: `0 B`, `999 B`, `1.5 kB`, `67.1 MB` (powers of 1000).
[[nodiscard]] std::string format_bytes(std::int64_t bytes);

/// Returns a duration for people: `250 ns`, `3.2 us`, `6.8 ms`, `1.5 s`.
[[nodiscard]] std::string format_picoseconds(std::int64_t picoseconds);

}  // namespace tessera
