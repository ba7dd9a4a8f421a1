#include "tessera/comm/c10d/deadlock.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/comm/c10d/peers.h"

namespace tessera::detail {
namespace {

using Statuses = std::vector<std::optional<RankStatus>>;

/// Waits for call `number` of a group of these ranks, having made the calls.
RankStatus waits(const std::vector<std::int64_t>& ranks, std::int64_t number,
                 const std::string& calls) {
  RankStatus status;
  const std::string key = concat('{', joined(ranks, ","), '}');
  status.group = key;
  status.call = concat("barrier#", number);
  status.calls = calls;
  status.wait = 1;
  status.awaited = {ranks, key, number};
  return status;
}

TEST(DeadlockTest, TwoThatWaitForEachOtherAreFoundByBoth) {
  const Statuses all = {waits({0, 1}, 1, "{0,1}=1;"), waits({1, 0}, 3, "{1,0}=3;")};
  for (const std::int64_t rank : {0, 1}) {
    const auto found = find_deadlock(rank, all);
    ASSERT_TRUE(found);
    EXPECT_EQ(
        found->text,
        "deadlock, nobody can go on: rank 0 waits in barrier#1 on group {0,1} for rank 1; rank "
        "1 waits in barrier#3 on group {1,0} for rank 0");
    EXPECT_TRUE(found->concerns(0, 1));
    EXPECT_FALSE(found->concerns(0, 2));
    EXPECT_FALSE(found->concerns(2, 1));
  }
}

TEST(DeadlockTest, WhoHasCalledIsNotWaitedFor) {
  // Rank 0's second call on {1,0} is under way, so rank 1 can go on.
  const Statuses all = {waits({0, 1}, 1, "{0,1}=1;{1,0}=2;"), waits({1, 0}, 2, "{1,0}=2;")};
  EXPECT_FALSE(find_deadlock(0, all));
  EXPECT_FALSE(find_deadlock(1, all));
}

TEST(DeadlockTest, WhatIsNotCountedOrNotPostedProvesNothing) {
  const RankStatus first = waits({0, 1}, 1, "{0,1}=1;");
  RankStatus second = waits({1, 0}, 1, "{1,0}=1;");
  EXPECT_TRUE(find_deadlock(0, Statuses{first, second}));
  second.awaited.number = 0;
  EXPECT_FALSE(find_deadlock(0, Statuses{first, second}));
  EXPECT_FALSE(find_deadlock(0, Statuses{first, std::nullopt}));
  second = waits({1, 0}, 1, "{1,0}=1;");
  second.kind = RankStatus::Kind::failed;
  EXPECT_FALSE(find_deadlock(0, Statuses{first, second}));
}

TEST(DeadlockTest, MessagesThatWereNotCountedProveNothing) {
  RankStatus sender = waits({0, 1}, 1, "{0,1}0>1#7s=1;");
  sender.awaited = {{1}, "{0,1}0>1#7r", 1};
  // Waits for the sender in a barrier; whether it receives meanwhile cannot be known.
  const RankStatus sees = waits({0, 1}, 1, "{0,1}=1;");
  const RankStatus does_not = waits({0, 1}, 1, concat("{0,1}=1;", kUncounted, "=1;"));
  EXPECT_TRUE(find_deadlock(0, Statuses{sender, sees}));
  EXPECT_TRUE(find_deadlock(1, Statuses{sender, sees}));
  EXPECT_FALSE(find_deadlock(0, Statuses{sender, does_not}));
  EXPECT_FALSE(find_deadlock(1, Statuses{sender, does_not}));
}

/// Takes down what is posted.
class Notebook : public NoBoard {
 public:
  void post(const RankStatus& status) override { last = status; }
  RankStatus last;
};

TEST(DeadlockTest, RanksSayThatTheyDoNotCountAllMessages) {
  const auto board = std::make_shared<Notebook>();
  Peers peers(0, std::vector<ProcessIdentity>(2), board);
  for (int tag = 0; tag < 256; ++tag) {
    EXPECT_EQ(peers.count_message(concat("{0,1}0>1#", tag, 's')), 1);
  }
  EXPECT_EQ(peers.count_message("{0,1}0>1#5s"), 2);
  peers.post_waiting({});
  EXPECT_EQ(calls_on(board->last.calls, "{0,1}0>1#256s"), 0);
  EXPECT_EQ(peers.count_message("{0,1}0>1#256s"), 0);
  peers.post_waiting({});
  EXPECT_EQ(calls_on(board->last.calls, "{0,1}0>1#5s"), 2);
  EXPECT_EQ(calls_on(board->last.calls, "{0,1}0>1#256s"), std::nullopt);
  EXPECT_EQ(calls_on(board->last.calls, "{0,1}"), 0);
}

TEST(DeadlockTest, KeysOfLargeGroupsAreShort) {
  std::vector<std::int64_t> ranks = {3, 0, 11};
  EXPECT_EQ(group_key(ranks), "{3,0,11}");
  ranks.resize(1000);
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::string key = group_key(ranks);
  EXPECT_LT(key.size(), 40U);
  std::swap(ranks[500], ranks[501]);
  EXPECT_NE(group_key(ranks), key);
}

TEST(DeadlockTest, OnlyThoseInTheCircleAreInIt) {
  // 3 waits for 0, 0 for 1, 1 for 2, 2 for 0; 4 is at work.
  const Statuses all = {waits({0, 1}, 1, "{0,1}=1;"), waits({1, 2}, 1, "{1,2}=1;"),
                        waits({2, 0}, 1, "{2,0}=1;"), waits({0, 3}, 1, "{0,3}=1;"), std::nullopt};
  EXPECT_FALSE(find_deadlock(3, all));
  for (const std::int64_t rank : {0, 1, 2}) {
    const auto found = find_deadlock(rank, all);
    ASSERT_TRUE(found);
    EXPECT_THAT(found->waits, testing::ElementsAre(testing::Pair(0, 1), testing::Pair(1, 1),
                                                   testing::Pair(2, 1)));
  }
}

TEST(DeadlockTest, TheyAndStatusesSurviveBeingText) {
  RankStatus status = waits({0, 11}, 7, "{0,11}=7;");
  status.failed_groups = "{0,2}";
  status.deadlock = encode(
      *find_deadlock(0, Statuses{waits({0, 1}, 1, "{0,1}=1;"), waits({1, 0}, 1, "{1,0}=1;")}));
  const RankStatus read = decode_status(encode(status));
  EXPECT_EQ(encode(read), encode(status));
  EXPECT_EQ(read.wait, 1);
  EXPECT_THAT(read.awaited.ranks, testing::ElementsAre(0, 11));
  EXPECT_EQ(read.awaited.key, "{0,11}");
  EXPECT_EQ(read.awaited.number, 7);
  EXPECT_EQ(calls_on(read.calls, read.awaited.key), 7);
  const auto deadlock = decode_deadlock(read.deadlock);
  ASSERT_TRUE(deadlock);
  EXPECT_TRUE(deadlock->concerns(1, 1));
  EXPECT_THAT(deadlock->text, testing::StartsWith("deadlock, nobody can go on: rank 0 waits in "));
  EXPECT_FALSE(decode_deadlock(""));
}

/// Ranks that run programs of calls, and post what they wait for; all is read late and in disorder.
class Simulation {
 public:
  /// A program: the groups on which a rank makes its calls, one after the other.
  using Program = std::vector<std::vector<std::int64_t>>;

  explicit Simulation(std::vector<Program> programs)
      : programs_(std::move(programs)), ranks_(programs_.size()) {}

  /// Lets a rank make its next call, if it does not wait in one. Returns whether it did.
  bool call(std::size_t rank) {
    Rank& each = ranks_[rank];
    if (each.waits || each.next == programs_[rank].size()) return false;
    ++each.calls[programs_[rank][each.next++]];
    each.waits = true;
    return true;
  }

  /// Lets a rank go on when everybody has made its call. Returns whether it did.
  bool go_on(std::size_t rank) {
    Rank& each = ranks_[rank];
    if (!each.waits) return false;
    const auto& group = programs_[rank][each.next - 1];
    for (const auto member : group) {
      auto& calls = ranks_[static_cast<std::size_t>(member)].calls;
      if (calls[group] < each.calls[group]) return false;
    }
    each.waits = false;
    return true;
  }

  /// What a rank that waits posts now.
  [[nodiscard]] std::optional<RankStatus> status(std::size_t rank) const {
    const Rank& each = ranks_[rank];
    if (!each.waits) return std::nullopt;
    std::string calls;
    for (const auto& [group, count] : each.calls) {
      calls += concat('{', joined(group, ","), "}=", count, ';');
    }
    const auto& group = programs_[rank][each.next - 1];
    return waits(group, each.calls.at(group), calls);
  }

  /// Lets everybody go on as far as they get.
  void run_down() {
    for (bool any = true; any;) {
      any = false;
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        any = go_on(i) || any;
        any = call(i) || any;
      }
    }
  }

  /// Whether some of those that wait do so for each other: others wait for them, or for the end.
  [[nodiscard]] bool has_circle() {
    std::set<std::size_t> left;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].waits) left.insert(i);
    }
    const auto waits_for_nobody = [&](std::size_t rank) {
      const auto& group = programs_[rank][ranks_[rank].next - 1];
      return std::none_of(group.begin(), group.end(), [&](std::int64_t member) {
        const auto other = static_cast<std::size_t>(member);
        return left.contains(other) && ranks_[other].calls[group] < ranks_[rank].calls[group];
      });
    };
    while (std::erase_if(left, waits_for_nobody) > 0) {
    }
    return !left.empty();
  }

  [[nodiscard]] bool can_go_on(std::size_t rank) const {
    Simulation copy = *this;
    bool any = true;
    while (any) {
      any = false;
      for (std::size_t i = 0; i < ranks_.size(); ++i) {
        if (copy.go_on(i)) {
          if (i == rank) return true;
          any = true;
        }
        any = copy.call(i) || any;
      }
    }
    return false;
  }

 private:
  struct Rank {
    std::size_t next = 0;
    bool waits = false;
    std::map<std::vector<std::int64_t>, std::int64_t> calls;
  };

  std::vector<Program> programs_;
  std::vector<Rank> ranks_;
};

/// All ranks' parts of one sequence of calls, and now and then two of a rank's the other way round.
std::vector<Simulation::Program> random_programs(test::Random& random, std::size_t ranks) {
  std::vector<Simulation::Program> programs(ranks);
  for (int i = 0; i < 12; ++i) {
    std::vector<std::int64_t> group(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) group[rank] = static_cast<std::int64_t>(rank);
    random.shuffle(group);
    group.resize(static_cast<std::size_t>(random.between(2, std::ssize(group))));
    if (random.one_in(2)) std::sort(group.begin(), group.end());
    for (const auto rank : group) programs[static_cast<std::size_t>(rank)].push_back(group);
  }
  for (auto& program : programs) {
    if (!random.one_in(4) || program.size() < 2) continue;
    const auto place = static_cast<std::size_t>(random.between(0, std::ssize(program) - 2));
    std::swap(program[place], program[place + 1]);
  }
  return programs;
}

TEST(DeadlockTest, OldNewsNeverAccuseAndAllCirclesAreFound) {
  int deadlocks = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    test::Random random(seed);
    const auto ranks = static_cast<std::size_t>(random.between(2, 5));
    Simulation simulation(random_programs(random, ranks));
    // What each rank has read of each other one: as it was at some time before.
    std::vector<Statuses> read(ranks, Statuses(ranks));
    for (int step = 0; step < 400; ++step) {
      const auto rank = static_cast<std::size_t>(random.between(0, std::ssize(read) - 1));
      if (!simulation.go_on(rank)) (void)simulation.call(rank);
      const auto reader = static_cast<std::size_t>(random.between(0, std::ssize(read) - 1));
      // Who goes on need not say so in time: old news stay.
      if (auto status = simulation.status(rank)) read[reader][rank] = std::move(status);
      read[reader][reader] = simulation.status(reader);
      if (!read[reader][reader]) continue;
      if (find_deadlock(static_cast<std::int64_t>(reader), read[reader])) {
        ASSERT_FALSE(simulation.can_go_on(reader));
      }
    }
    // In the end everybody has read everything.
    simulation.run_down();
    Statuses last;
    for (std::size_t rank = 0; rank < ranks; ++rank) last.push_back(simulation.status(rank));
    bool any_found = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (!last[rank]) continue;
      any_found = any_found || find_deadlock(static_cast<std::int64_t>(rank), last).has_value();
    }
    EXPECT_EQ(any_found, simulation.has_circle());
    if (any_found) ++deadlocks;
  }
  EXPECT_GT(deadlocks, 100);
}

}  // namespace
}  // namespace tessera::detail
