#include "tessera/base/units.h"

#include <array>
#include <cstdio>
#include <span>

namespace tessera {
namespace {

/// Prints `value`, in the first unit, in the largest unit that leaves at least 1 in front.
std::string scaled(double value, std::span<const char* const> units) {
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  const bool whole = value >= 99.95 || unit == 0;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text.data();
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  return scaled(static_cast<double>(bytes), kUnits);
}

std::string format_picoseconds(std::int64_t picoseconds) {
  constexpr std::array<const char*, 5> kUnits = {"ps", "ns", "us", "ms", "s"};
  return scaled(static_cast<double>(picoseconds), kUnits);
}

}  // namespace tessera
