#include "tessera/nn/near_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tessera/base/concat.h"

namespace tessera::nn::detail {
namespace {

std::string_view last_part(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += concat(text.empty() ? "'" : ", '", name, "'");
  return text;
}

}  // namespace

std::size_t edit_distance(std::string_view from, std::string_view to) {
  // One row of the table at a time: row[j] is the distance of a prefix of `from` to to[0, j).
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::vector<std::string> near_names(const std::string& name, const std::vector<std::string>& names,
                                    std::size_t count) {
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const auto& other : names) {
    const std::size_t distance = edit_distance(name, other);
    const bool is_near = 3 * distance <= std::max(name.size(), other.size());
    const bool has_same_end = !other.empty() && last_part(name) == last_part(other);
    if (is_near || has_same_end) near.emplace_back(distance, other);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (auto& [distance, other] : near) {
    if (result.size() < count) result.push_back(std::move(other));
  }
  return result;
}

std::string near_names_text(const std::string& name, const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 8;
  const auto near = near_names(name, names);
  if (!near.empty()) return concat("near ones are ", quoted(near));
  if (names.empty()) return "there are none at all";
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  return concat("there are ", quoted(first), names.size() > kShown ? ", ..." : "");
}

}  // namespace tessera::nn::detail
