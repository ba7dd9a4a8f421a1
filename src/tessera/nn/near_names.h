#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::nn::detail {

/// Returns how many characters must be inserted, removed or replaced to get from one to the other.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

/// Returns up to `count` of the names that are near to `name`, the nearest first: at most a third of
/// it differs, or one has the other's last part.
[[nodiscard]] std::vector<std::string> near_names(const std::string& name,
                                                  const std::vector<std::string>& names,
                                                  std::size_t count = 3);

/// Returns what an error says about a name that is not among `names`: `near ones are 'fc1', 'fc2'`, or
/// the first of all when none is near.
[[nodiscard]] std::string near_names_text(const std::string& name,
                                          const std::vector<std::string>& names);

}  // namespace tessera::nn::detail
