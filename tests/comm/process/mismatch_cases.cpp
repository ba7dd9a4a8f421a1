#include "comm/process/mismatch_cases.h"

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/traffic.h"
#include "tessera/comm/world.h"

namespace tessera::test {
namespace {

using Sizes = std::vector<std::int64_t>;

/// Divisible by the size of every group.
constexpr std::int64_t kRows = 12;

/// A call of a collective.
struct Call {
  std::string collective;
  at::ScalarType dtype = at::kFloat;
  Sizes shape = {kRows, 3};
  std::int64_t dim = 0;
  ReduceOp reduce = ReduceOp::sum;
  std::int64_t root = 0;
  Sizes sizes = {};
  /// Of permute.
  Sizes destinations = {};
};

void perform(const Call& call, const Group& group) {
  const at::Tensor x = at::ones(call.shape, call.dtype);
  const std::vector<at::Tensor> two = {x, x};
  const Sizes even(static_cast<std::size_t>(group.size()), kRows / group.size());
  const std::map<std::string, std::function<void()>> all = {
      {"all_reduce", [&] { (void)all_reduce(x, call.reduce, group); }},
      {"all_reduce_coalesced", [&] { (void)all_reduce(two, call.reduce, group); }},
      {"all_gather", [&] { (void)all_gather(x, call.dim, group, {.sizes = call.sizes}); }},
      {"all_gather_coalesced", [&] { (void)all_gather(two, call.dim, group); }},
      {"reduce_scatter",
       [&] { (void)reduce_scatter(x, call.dim, call.reduce, group, {.sizes = call.sizes}); }},
      {"reduce_scatter_coalesced",
       [&] { (void)reduce_scatter(two, call.dim, call.reduce, group); }},
      {"all_to_all",
       [&] { (void)all_to_all(x, call.sizes.empty() ? even : call.sizes, even, group); }},
      {"broadcast", [&] { (void)broadcast(x, call.root, group); }},
      {"scatter", [&] { (void)scatter(x, call.dim, call.root, group, {.sizes = call.sizes}); }},
      {"gather", [&] { (void)gather(x, call.dim, call.root, group); }},
      {"permute", [&] { (void)permute(x, call.destinations, group); }},
      {"barrier", [&] { barrier(group); }},
      {"all_gather_object", [&] { (void)all_gather_object("bytes", group); }},
  };
  all.at(call.collective)();
}

/// The name that messages show.
std::string c10d_name(const std::string& collective) {
  static const std::map<std::string, std::string> kOthers = {
      {"all_gather", "all_gather_into_tensor"},
      {"all_gather_coalesced", "all_gather_into_tensor_coalesced"},
      {"reduce_scatter", "reduce_scatter_tensor"},
      {"reduce_scatter_coalesced", "reduce_scatter_tensor_coalesced"},
      {"all_to_all", "all_to_all_single"},
      {"permute", "all_to_all_single"},
  };
  const auto found = kOthers.find(collective);
  return found == kOthers.end() ? collective : found->second;
}

/// Everybody's call; the permutation is a ring.
Call usual_call(const std::string& collective, std::int64_t members, Random& random) {
  Call call{.collective = collective};
  call.shape[1] = random.between(1, 5);
  call.root = random.between(0, members - 1);
  for (std::int64_t i = 0; i < members; ++i) call.destinations.push_back((i + 1) % members);
  return call;
}

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
  } else if (call.collective == "all_gather") {  // The others are splits.
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

/// Both ends of a message differ; the other members do not take part.
void perform_message(const Call& call, bool is_odd, std::int64_t peer, const Group& group) {
  const at::Tensor x = at::ones(call.shape, call.dtype);
  if (is_odd) {
    (void)recv(x, peer, group);
  } else {
    send(x, peer, group);
  }
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

/// What the call throws, after making sure that no data moved.
std::string thrown_by(const std::function<void()>& call, const Group& group) {
  CommDebugMode traffic;
  std::string message;
  try {
    const auto scope = traffic.record();
    call();
    ADD_FAILURE() << "the mismatch was not found";
  } catch (const CommError& error) {
    message = error.what();
    EXPECT_EQ(error.group(), group.name());
  } catch (const std::exception& error) {
    ADD_FAILURE() << "something else was thrown: " << error.what();
  }
  for (const auto& record : traffic.records()) {
    // A receive is counted when it is asked for.
    EXPECT_TRUE(record.name == "send" || record.name == "recv" || record.sent_bytes == 0)
        << record.name << " moved data";
  }
  return message;
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

std::vector<GroupPair> all_group_pairs_of(std::int64_t ranks) {
  auto groups = all_groups_of(ranks, static_cast<std::size_t>(ranks));
  // Not that of the world, which the cases need afterwards.
  std::erase_if(groups, [&](const auto& group) {
    return static_cast<std::int64_t>(group.size()) < ranks ||
           std::is_sorted(group.begin(), group.end());
  });
  std::vector<GroupPair> pairs;
  for (std::size_t i = 0; i + 1 < groups.size(); i += 2)
    pairs.emplace_back(groups[i], groups[i + 1]);
  return pairs;
}

std::vector<std::string> all_collectives() {
  std::set<std::string> names;
  for (const auto& mismatch : all_mismatches()) names.insert(mismatch.collective);
  return {names.begin(), names.end()};
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
      {"gather", {"dim", "root"}},
      {"permute", {"peer"}},
  };
  std::vector<Mismatch> all;
  for (const auto& [collective, kinds] : more) {
    for (const auto& kind : tensor) all.push_back({collective, kind});
    for (const auto& kind : kinds) all.push_back({collective, kind});
  }
  for (const char* collective : {"barrier", "all_gather_object"}) {
    all.insert(all.end(), {{collective, "op"}, {collective, "order"}});
  }
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
        perform_message(is_odd ? odd : usual, is_odd, is_odd ? sender : odd_member, group);
      };
      expect_both_shown(thrown_by(call, group), odd_rank, "send(float32[12,", "recv(");
    }
  } else if (kind == "order") {
    const Call other{.collective = "all_reduce", .shape = {5}};
    const std::string message = thrown_by(
        [&] {
          perform(is_odd ? other : usual, group);
          perform(is_odd ? usual : other, group);
        },
        group);
    expect_both_shown(message, odd_rank, c10d_name(collective) + "(", "all_reduce(float32[5] sum)");
  } else {
    const Call odd = odd_call(usual, kind, members, odd_member, random);
    const std::string message = thrown_by([&] { perform(is_odd ? odd : usual, group); }, group);
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

void check_wrong_group(const GroupPair& groups, const std::string& collective, std::uint64_t seed) {
  const Group usual = World::current().group(groups.first);
  const Group other = World::current().group(groups.second);
  SCOPED_TRACE(concat(collective, " seed ", seed, " groups ", usual.name(), ' ', other.name()));
  Random random(seed);
  const std::int64_t members = usual.size();
  const std::int64_t odd_member = random.between(0, members - 1);
  const std::int64_t sender = (odd_member + 1) % members;
  const std::int64_t odd_rank = usual.ranks()[static_cast<std::size_t>(odd_member)];
  const bool is_odd = usual.index() == odd_member;
  const Group& own = is_odd ? other : usual;
  const Call call = usual_call(collective, members, random);
  // Both groups work.
  barrier(usual);
  barrier(other);
  const bool is_message = collective == "message";
  const std::string message = thrown_by(
      [&] {
        if (!is_message) return perform(call, own);
        // All others send to the odd one, which listens elsewhere.
        const auto rank = usual.ranks()[static_cast<std::size_t>(is_odd ? sender : odd_member)];
        const auto peer = std::find(own.ranks().begin(), own.ranks().end(), rank);
        perform_message(call, is_odd, peer - own.ranks().begin(), own);
      },
      own);
  // Who gives up first says so, and then the others know it from there.
  const std::string who = is_odd ? "[0-9]+" : std::to_string(odd_rank);
  const std::string name = is_message ? (is_odd ? "send" : "recv") : c10d_name(collective);
  const std::string there = is_odd ? usual.name() : other.name();
  EXPECT_THAT(message,
              testing::ContainsRegex(concat("rank ", who, " (did not come[^;]* it calls ", name,
                                            "\\(.*\\) on group |failed: ", name, " on group )")));
  EXPECT_THAT(message, testing::HasSubstr(concat("on group ", there)));
  EXPECT_THROW(barrier(own), CommError) << "a failed group can be used";
}

void check_wrong_groups(const std::vector<GroupPair>& groups, std::size_t first,
                        std::size_t count) {
  const auto collectives = all_collectives();
  const std::size_t end = std::min(first + count, collectives.size() * kMismatchSeeds);
  for (std::size_t number = first; number < end; ++number) {
    check_wrong_group(groups[number - first], collectives[number % collectives.size()], number);
  }
  // Who has left would be missed for that.
  barrier(World::current().group());
}

}  // namespace tessera::test
