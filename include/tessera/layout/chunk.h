#pragma once

#include <cstdint>
#include <iosfwd>

namespace tessera {

/// The indices [begin, begin + size) along one dimension.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t size = 0;

  [[nodiscard]] constexpr std::int64_t end() const { return begin + size; }
  bool operator==(const Extent&) const = default;
};

/// Prints `[begin, end)`.
std::ostream& operator<<(std::ostream& os, const Extent& extent);

/// Returns what chunk `index` of `count` owns of a dimension of `length`.
///
/// Chunks are ceil(length / count) long, so the last ones may be short or empty, and an empty one
/// starts at the end: of 5 over 4, chunk 2 is `{4, 1}` and chunk 3 is `{5, 0}`.
///
/// Throws `InvalidArgument` unless length >= 0 and 0 <= index < count.
[[nodiscard]] Extent chunk_extent(std::int64_t length, std::int64_t count, std::int64_t index);

}  // namespace tessera
