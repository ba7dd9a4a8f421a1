#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::sharded::detail {

/// Writes numbers and texts, one behind the other: numbers as 8 bytes, lowest first; what has a length
/// begins with it.
class ByteWriter {
 public:
  ByteWriter& number(std::int64_t value);
  ByteWriter& text(std::string_view value);
  ByteWriter& numbers(const std::vector<std::int64_t>& values);

  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what a `ByteWriter` wrote. Throws `InvalidArgument` that names `what` when the bytes end too
/// early, when a length cannot be, and, by `finish`, when there are bytes left.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, const char* what) : rest_(bytes), what_(what) {}

  [[nodiscard]] std::int64_t number();
  [[nodiscard]] std::string text();
  [[nodiscard]] std::vector<std::int64_t> numbers();
  /// A number of things that follow, each of which takes at least `least` bytes.
  [[nodiscard]] std::int64_t count(std::int64_t least);
  void finish() const;
  /// Throws that the bytes are not what they should be.
  [[noreturn]] void fail(const std::string& why) const;

 private:
  std::string_view rest_;
  const char* what_;
};

}  // namespace tessera::sharded::detail
