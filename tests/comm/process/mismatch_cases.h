#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/comm/group.h"

namespace tessera::test {

/// All orders of all sets of two to `most` of the ranks 0 to `ranks` - 1, shuffled: 60 groups of up
/// to four of four ranks. A group can fail only once, so that every case of a mismatch needs its own.
[[nodiscard]] std::vector<std::vector<std::int64_t>> all_groups_of(std::int64_t ranks,
                                                                   std::size_t most);

/// A collective, and what one member passes differently.
struct Mismatch {
  std::string collective;
  std::string kind;
};

/// Every collective with every kind of mismatch that it can have.
[[nodiscard]] std::vector<Mismatch> all_mismatches();

/// One member, chosen by the seed, makes a call that differs: expects all members to get the error
/// that names two different calls and their ranks, and the group to be unusable afterwards. Members
/// only. That no data moves before is checked below the functions, by `check_outputs_untouched`.
void check_mismatch(const Group& group, const Mismatch& mismatch, std::uint64_t seed);

/// With so many seeds each.
inline constexpr std::size_t kMismatchSeeds = 20;

/// Checks the mismatches [first, first + groups) of all with all seeds, each on one of the groups.
/// All ranks of the world call it.
void check_mismatches(std::int64_t rank, const std::vector<std::vector<std::int64_t>>& groups,
                      std::size_t first);

}  // namespace tessera::test
