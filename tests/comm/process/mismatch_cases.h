#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/group.h"

namespace tessera::test {

/// All orders of all sets of two to `most` of the ranks 0 to `ranks` - 1, shuffled: 60 groups of up
/// to four of four ranks. A group can fail only once, so that every case of a mismatch needs its own.
[[nodiscard]] std::vector<std::vector<std::int64_t>> all_groups_of(std::int64_t ranks,
                                                                   std::size_t most);

/// Two orders of the same ranks.
using GroupPair = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;

/// As many such pairs of all the ranks 0 to `ranks` - 1 as there are without using an order twice, or
/// that of the world, shuffled: 11 of four ranks.
[[nodiscard]] std::vector<GroupPair> all_group_pairs_of(std::int64_t ranks);

/// A collective, and what one member passes differently.
struct Mismatch {
  std::string collective;
  std::string kind;
};

/// Every collective with every kind of mismatch that it can have.
[[nodiscard]] std::vector<Mismatch> all_mismatches();

/// One member, chosen by the seed, makes a call that differs: expects all members to get the error
/// that names two different calls and their ranks, no data to move, and the group to be unusable
/// afterwards. Members only.
void check_mismatch(const Group& group, const Mismatch& mismatch, std::uint64_t seed);

/// The collectives among them, each once.
[[nodiscard]] std::vector<std::string> all_collectives();

/// One member, chosen by the seed, calls the collective on the other group of the pair: expects all
/// members to get an error that says where somebody else is, after the time limit; and no data to
/// move. Members only.
void check_wrong_group(const GroupPair& groups, const std::string& collective, std::uint64_t seed);

/// With so many seeds each.
inline constexpr std::size_t kMismatchSeeds = 20;

/// Checks the mismatches [first, first + groups) of all with all seeds, each on one of the groups.
/// All ranks of the world call it.
void check_mismatches(std::int64_t rank, const std::vector<std::vector<std::int64_t>>& groups,
                      std::size_t first);

/// Checks the cases [first, first + count) of wrong groups, each on one of the pairs, of which there
/// must be as many. All ranks of the world call it.
void check_wrong_groups(const std::vector<GroupPair>& groups, std::size_t first, std::size_t count);

}  // namespace tessera::test
