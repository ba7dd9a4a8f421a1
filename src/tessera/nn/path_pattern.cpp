#include "tessera/nn/path_pattern.h"

#include <utility>

#include "tessera/base/check.h"

namespace tessera::nn::detail {
namespace {

/// Takes the first part, up to a dot, off a path.
std::string_view take_part(std::string_view& rest) {
  const auto dot = rest.find('.');
  const auto part = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  return part;
}

/// Whether `character` is in a set such as `a0-3`.
bool is_in_set(char character, std::string_view set) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    const bool is_range = i + 2 < set.size() && set[i + 1] == '-';
    const char last = is_range ? set[i + 2] : set[i];
    if (set[i] <= character && character <= last) return true;
    if (is_range) i += 2;
  }
  return false;
}

bool part_matches(std::string_view pattern, std::string_view part) {
  if (pattern.empty()) return part.empty();
  if (pattern[0] == '*') {
    for (std::size_t skipped = 0; skipped <= part.size(); ++skipped) {
      if (part_matches(pattern.substr(1), part.substr(skipped))) return true;
    }
    return false;
  }
  if (part.empty()) return false;
  if (pattern[0] == '[') {
    const auto end = pattern.find(']');
    return end != std::string_view::npos && is_in_set(part[0], pattern.substr(1, end - 1)) &&
           part_matches(pattern.substr(end + 1), part.substr(1));
  }
  return (pattern[0] == '?' || pattern[0] == part[0]) &&
         part_matches(pattern.substr(1), part.substr(1));
}

}  // namespace

void check_pattern(const char* function, std::string_view pattern) {
  auto rest = pattern;
  while (!rest.empty()) {
    auto part = take_part(rest);
    for (auto open = part.find('['); open != std::string_view::npos; open = part.find('[')) {
      const auto close = part.find(']', open);
      TESSERA_CHECK(close != std::string_view::npos, function, ": pattern '", pattern,
                    "' opens a set of characters with '[' and does not close it; add ']'");
      part.remove_prefix(close + 1);
    }
  }
}

bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.empty() || path.empty()) return (pattern.empty() || pattern == "**") && path.empty();
  std::string_view pattern_rest = pattern;
  const auto first = take_part(pattern_rest);
  if (first == "**") {
    if (pattern_rest.empty()) return true;
    for (auto rest = path; !rest.empty(); take_part(rest)) {
      if (matches(pattern_rest, rest)) return true;
    }
    return false;
  }
  auto path_rest = path;
  const auto part = take_part(path_rest);
  return part_matches(first, part) && matches(pattern_rest, path_rest);
}

}  // namespace tessera::nn::detail
