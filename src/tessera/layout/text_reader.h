#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::detail {

/// A cursor over text for the small notations of this layer (`S(0)`, `dp=2`); skips blanks.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : rest_(text) {}

  /// Consumes `token` when it comes next.
  bool accept(std::string_view token) {
    skip_blanks();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  /// Consumes an integer that fits 64 bits, with an optional minus sign.
  std::optional<std::int64_t> accept_integer() {
    skip_blanks();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  /// Consumes a name: letters, digits and underscores, not starting with a digit. Empty when
  /// something else comes next.
  std::string_view accept_name() {
    skip_blanks();
    std::size_t size = 0;
    while (size < rest_.size() && is_name_char(rest_[size], size == 0)) ++size;
    const std::string_view name = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return name;
  }

  bool at_end() {
    skip_blanks();
    return rest_.empty();
  }

 private:
  static bool is_name_char(char c, bool first) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '_' || std::isalpha(byte) != 0 || (!first && std::isdigit(byte) != 0);
  }
  void skip_blanks() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.front())) != 0) {
      rest_.remove_prefix(1);
    }
  }

  std::string_view rest_;
};

}  // namespace tessera::detail
