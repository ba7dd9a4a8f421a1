#include "comm/process/mismatch_cases.h"

#include <algorithm>
#include <map>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/process/mismatch_calls.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/world.h"

namespace tessera::test {
namespace {

using Sizes = std::vector<std::int64_t>;

/// The odd one's call.
Call odd_call(Call call, const std::string& kind, std::int64_t members, std::int64_t member,
              Random& random) {
  const auto next = static_cast<std::size_t>((member + 1) % members);
  if (kind == "op") {
    const std::string name = c10d_name(call.collective);
    do call.collective = random.pick(all_mismatches()).collective;
    while (call.collective == "message" || c10d_name(call.collective) == name);
  } else if (kind == "shape") {
    call.shape[1] += random.between(1, 3);
  } else if (kind == "ndim") {
    call.shape.push_back(1);
  } else if (kind == "dtype") {
    call.dtype = random.pick(std::vector{at::kInt, at::kDouble, at::kLong});
  } else if (kind == "reduce op") {
    call.reduce = random.pick(std::vector{ReduceOp::max, ReduceOp::product, ReduceOp::avg});
  } else if (kind == "root") {
    call.root = (call.root + random.between(1, members - 1)) % members;
  } else if (kind == "dim") {
    call.dim = 1;
  } else if (kind == "peer") {
    call.destinations = Sizes(static_cast<std::size_t>(members), -1);
    call.destinations[next] = member;
  } else if (call.collective == "all_gather" || call.collective == "gather") {  // Splits.
    call.sizes = Sizes(static_cast<std::size_t>(members), kRows);
    call.sizes[next] += random.between(1, 3);
  } else if (call.collective == "all_to_all") {
    call.sizes = Sizes(static_cast<std::size_t>(members), kRows / members);
    call.sizes[next] += random.between(1, 3);
  } else {
    call.sizes = Sizes(static_cast<std::size_t>(members), 0);
    call.sizes[next] = kRows;
  }
  return call;
}

/// Expects two different calls of two ranks, one of them the odd one, of these collectives.
void expect_both_shown(const std::string& message, std::int64_t odd_rank, const std::string& usual,
                       const std::string& odd) {
  static const std::regex kBoth(
      "the ranks do not agree: rank ([0-9]+) calls (.*), rank ([0-9]+) calls (.*)");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(message, found, kBoth)) << message;
  const bool odd_is_first = found[1] == std::to_string(odd_rank);
  EXPECT_TRUE(odd_is_first || found[3] == std::to_string(odd_rank)) << message;
  EXPECT_NE(found[1], found[3]) << message;
  EXPECT_NE(found[2], found[4]) << message;
  EXPECT_EQ(found[odd_is_first ? 2 : 4].str().substr(0, odd.size()), odd) << message;
  EXPECT_EQ(found[odd_is_first ? 4 : 2].str().substr(0, usual.size()), usual) << message;
}

}  // namespace

std::vector<std::vector<std::int64_t>> all_groups_of(std::int64_t ranks, std::size_t most) {
  std::vector<std::vector<std::int64_t>> groups;
  for (unsigned set = 0; set < 1U << ranks; ++set) {
    std::vector<std::int64_t> members;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      if ((set >> rank & 1U) != 0) members.push_back(rank);
    }
    if (members.size() < 2 || members.size() > most) continue;
    do groups.push_back(members);
    while (std::next_permutation(members.begin(), members.end()));
  }
  // So that no rank has to wait for long until it is its turn.
  Random(0).shuffle(groups);
  return groups;
}

std::vector<Mismatch> all_mismatches() {
  const std::vector<std::string> tensor = {"op", "order", "shape", "ndim", "dtype"};
  const std::map<std::string, std::vector<std::string>> more = {
      {"all_reduce", {"reduce op"}},
      {"all_reduce_coalesced", {"reduce op"}},
      {"all_gather", {"dim", "splits"}},
      {"all_gather_coalesced", {"dim"}},
      {"reduce_scatter", {"dim", "reduce op", "splits"}},
      {"reduce_scatter_coalesced", {"dim", "reduce op"}},
      {"all_to_all", {"splits"}},
      {"broadcast", {"root"}},
      {"scatter", {"dim", "root", "splits"}},
      {"gather", {"dim", "root", "splits"}},
      {"permute", {"peer"}},
  };
  std::vector<Mismatch> all;
  for (const auto& [collective, kinds] : more) {
    for (const auto& kind : tensor) all.push_back({collective, kind});
    for (const auto& kind : kinds) all.push_back({collective, kind});
  }
  for (const char* collective : {"barrier", "all_gather_object", "scatter_pieces"}) {
    all.insert(all.end(), {{collective, "op"}, {collective, "order"}});
  }
  all.push_back({"scatter_pieces", "root"});
  all.insert(all.end(), {{"message", "shape"}, {"message", "ndim"}, {"message", "dtype"}});
  return all;
}

void check_mismatch(const Group& group, const Mismatch& mismatch, std::uint64_t seed) {
  const auto& [collective, kind] = mismatch;
  SCOPED_TRACE(concat(collective, ' ', kind, " seed ", seed, " group ", group.name()));
  Random random(seed);
  const std::int64_t members = group.size();
  const std::int64_t odd_member = random.between(0, members - 1);
  const std::int64_t odd_rank = group.ranks()[static_cast<std::size_t>(odd_member)];
  const bool is_odd = group.index() == odd_member;
  const Call usual = usual_call(collective, members, random);
  if (collective == "message") {
    const std::int64_t sender = (odd_member + 1) % members;
    const Call odd = odd_call(usual, kind, members, odd_member, random);
    if (is_odd || group.index() == sender) {
      const auto call = [&] {
        perform(is_odd ? odd : usual, {.is_send = !is_odd, .peer = is_odd ? sender : odd_member},
                group);
      };
      expect_both_shown(comm_error_of(call, group), odd_rank, "send(float32[12,", "recv(");
    }
  } else if (kind == "order") {
    const Call other{.collective = "all_reduce", .shape = {5}};
    const std::string message = comm_error_of(
        [&] {
          perform(is_odd ? other : usual, group);
          perform(is_odd ? usual : other, group);
        },
        group);
    expect_both_shown(message, odd_rank, c10d_name(collective) + "(", "all_reduce(float32[5] sum)");
  } else {
    const Call odd = odd_call(usual, kind, members, odd_member, random);
    const std::string message = comm_error_of([&] { perform(is_odd ? odd : usual, group); }, group);
    if (collective == "all_to_all" && kind == "splits") {
      EXPECT_THAT(message,
                  testing::ContainsRegex(concat("the ranks do not agree: rank [0-9]+ sends "
                                                "[0-9]+ row\\(s\\) to rank ",
                                                odd_rank, ", which expects [0-9]+")));
    } else {
      expect_both_shown(message, odd_rank, c10d_name(collective) + "(",
                        c10d_name(odd.collective) + "(");
    }
  }
  try {
    barrier(group);
    ADD_FAILURE() << "a failed group can be used";
  } catch (const CommError& error) {
    // Who took no part in a message learns of it here.
    if (collective == "message") return;
    EXPECT_THAT(error.what(), testing::HasSubstr("the group cannot be used any more since it "
                                                 "failed: the ranks do not agree"));
  }
}

void check_mismatches(std::int64_t rank, const std::vector<std::vector<std::int64_t>>& groups,
                      std::size_t first) {
  const auto mismatches = all_mismatches();
  const std::size_t end = std::min(first + groups.size(), mismatches.size() * kMismatchSeeds);
  for (std::size_t number = first; number < end; ++number) {
    const auto& ranks = groups[number - first];
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
    check_mismatch(World::current().group(ranks), mismatches[number % mismatches.size()], number);
  }
}

}  // namespace tessera::test
