#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

/// Writes one JSON value, piece by piece, onto a single line. The caller keeps the order right:
/// a key before each member of an object, as many `end` as `begin`.
class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(std::int64_t number);
  /// The shortest text that reads back as the same number; `null` for what JSON has no number for.
  JsonWriter& value(double number);
  JsonWriter& value(bool flag);
  JsonWriter& value(const std::vector<std::int64_t>& numbers);

  /// Shorthand for a member of an object.
  template <typename Value>
  JsonWriter& member(std::string_view name, const Value& member_value) {
    return key(name).value(member_value);
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void separate();
  void append_quoted(std::string_view text);

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace tessera::detail
