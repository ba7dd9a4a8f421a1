#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/world.h"

namespace tessera::test {

/// Rank 1 of three ends in the middle of its work, in some way, while the others wait for it in a call.
struct EndingCase {
  /// `broadcast while rank 1 throws`.
  std::string name;
  /// Which of the calls, and which of the ways.
  std::size_t call = 0;
  std::size_t way = 0;
  std::function<void(World&)> run;
  /// How the others' error begins: `broadcast on group world, rank `.
  std::string beginning;
  /// What it says of rank 1.
  std::string words;
  /// Its process ends at once, so that a launcher may take notice.
  bool is_sudden = false;
};

/// Every collective and both sides of a message, with each way to end.
[[nodiscard]] std::vector<EndingCase> all_ending_cases();

/// How many ways there are.
inline constexpr std::size_t kWaysToEnd = 5;

}  // namespace tessera::test
