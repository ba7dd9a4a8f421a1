#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/process/mismatch_cases.h"
#include "tessera/comm/world.h"

namespace tessera::test {

/// Two orders of the same ranks.
using GroupPair = std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;

/// As many such pairs of all the ranks 0 to `ranks` - 1 as there are without using an order twice, or
/// that of the world, shuffled: 11 of four ranks.
[[nodiscard]] std::vector<GroupPair> all_group_pairs_of(std::int64_t ranks);

/// What members can get wrong so that they wait for each other: every collective on another group, and
/// messages to another peer, of the other direction or in another order.
[[nodiscard]] std::vector<Mismatch> all_deadlocks();

/// One member, chosen by the seed, makes a call that differs: expects all members to get an error that
/// says who waits for whom and in what, long before the time limit. Members only, of which there must
/// be three or more.
void check_deadlock(const GroupPair& groups, const Mismatch& mismatch, std::uint64_t seed);

/// Checks the cases [first, first + groups) of all with all seeds, each on one of the pairs. All ranks of
/// the world call it.
void check_deadlocks(const std::vector<GroupPair>& groups, std::size_t first);

/// Ranks come late, again and again, to calls on groups that overlap, some of them asynchronous, so
/// that others wait for them and for those that wait: expects nobody to be accused. For a world with that
/// time limit, of which a quarter is less than they sleep.
inline constexpr std::chrono::seconds kSlowLimit{3};
void check_slow_ranks(World& world, std::uint64_t seed);

/// A rank calls, and waits for what is under way, while another thread of it is in a call: expects that
/// to be refused, and both threads to be able to go on one after the other.
void check_two_threads(World& world);

}  // namespace tessera::test
