#pragma once

#include <sstream>
#include <string>

namespace tessera {

/// Returns the parts streamed one after the other: `concat("dim ", 3)` is `"dim 3"`.
template <typename... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return std::move(stream).str();
}

/// Returns the items of `range` streamed with `separator` between them: `joined({1, 2}, ", ")`
/// on a vector is `"1, 2"`; an empty range is `""`.
template <typename Range>
[[nodiscard]] std::string joined(const Range& range, const char* separator = ", ") {
  std::ostringstream stream;
  const char* between = "";
  for (const auto& item : range) {
    stream << between << item;
    between = separator;
  }
  return std::move(stream).str();
}

}  // namespace tessera
