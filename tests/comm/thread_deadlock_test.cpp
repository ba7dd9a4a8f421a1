#include <algorithm>
#include <latch>
#include <map>
#include <regex>
#include <thread>

#include <gmock/gmock.h>

#include "comm/collectives_inputs.h"
#include "support/random_layout.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/world_state.h"

// Ranks that are threads and wait for each other are told at once, whatever the others do; nobody else is.
// That it was not the time limit can be seen by the words: then they would say who did not call in time.

namespace tessera::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;

/// Counts down when a rank is through, whatever it throws.
class Told {
 public:
  explicit Told(std::latch& latch) : latch_(latch) {}
  ~Told() { latch_.count_down(); }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

 private:
  std::latch& latch_;
};

/// Runs `fn` on ranks that must throw, and beside them one more rank, which is busy until they have.
/// Returns what they threw.
std::vector<std::string> errors_beside_a_busy_rank(std::int64_t ranks,
                                                   const std::function<void(World&)>& fn) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::latch told(ranks);
  run_ranks(
      ranks + 1,
      [&](World& world) {
        if (world.rank() == ranks) return told.wait();
        const Told tells(told);
        errors[static_cast<std::size_t>(world.rank())] = thrown_by<CommError>([&] { fn(world); });
      },
      test_options());
  return errors;
}

TEST(ThreadDeadlockTest, OnDifferentGroupsIsFoundBesideABusyRank) {
  const auto errors = errors_beside_a_busy_rank(2, [](World& world) {
    barrier(world.group(world.rank() == 0 ? Sizes{0, 1} : Sizes{1, 0}));
  });
  EXPECT_THAT(errors,
              Each(EndsWith("deadlock, nobody can go on: rank 0 waits in barrier() on group {0,1} "
                            "for rank 1; rank 1 waits in barrier() on group {1,0} for rank 0")));
}

TEST(ThreadDeadlockTest, OfTwoThatSendIsFoundBesideABusyRank) {
  const auto errors = errors_beside_a_busy_rank(
      2, [](World& world) { send(at::ones({4}), 1 - world.rank(), world.group()); });
  EXPECT_THAT(
      errors,
      Each(EndsWith("deadlock, nobody can go on: rank 0 waits in send(float32[4] tag 0) on group "
                    "world for rank 1; rank 1 waits in send(float32[4] tag 0) on group world for "
                    "rank 0")));
}

TEST(ThreadDeadlockTest, OfTwoThatReceiveIsFoundBesideABusyRank) {
  for (const bool is_async : {false, true}) {
    const auto errors = errors_beside_a_busy_rank(2, [&](World& world) {
      const at::Tensor x =
          recv(at::ones({4}), 1 - world.rank(), world.group(), 7, {.async_op = is_async});
      send(wait(x), 1 - world.rank(), world.group(), 7);
    });
    EXPECT_THAT(
        errors,
        Each(EndsWith("deadlock, nobody can go on: rank 0 waits in recv(float32[4] tag 7) on group "
                      "world for rank 1; rank 1 waits in recv(float32[4] tag 7) on group world for "
                      "rank 0")));
  }
}

TEST(ThreadDeadlockTest, IsFoundThoughTheBusyRankIsMissingToo) {
  const auto errors = errors_beside_a_busy_rank(2, [](World& world) {
    if (world.rank() == 0) return barrier(world.group());
    (void)recv(at::ones({4}), 0, world.group());
  });
  EXPECT_THAT(errors,
              Each(EndsWith("deadlock, nobody can go on: rank 0 waits in barrier() on group world "
                            "for rank 1; rank 1 waits in recv(float32[4] tag 0) on group world "
                            "for rank 0")));
}

/// A ring of pairs, each of three ranks with the next one first.
void meet_next(World& world) {
  const std::int64_t next = (world.rank() + 1) % 3;
  barrier(world.group({std::min(world.rank(), next), std::max(world.rank(), next)}));
}

TEST(ThreadDeadlockTest, OfAllRanksIsFound) {
  run_ranks(
      3,
      [](World& world) {
        EXPECT_THAT(thrown_by<CommError>([&] { meet_next(world); }),
                    HasSubstr("deadlock, nobody can go on: rank 0 waits"));
      },
      test_options());
}

TEST(ThreadDeadlockTest, OfThreeInACircleIsFoundBesideABusyFourth) {
  const auto errors = errors_beside_a_busy_rank(3, meet_next);
  EXPECT_THAT(errors,
              Each(EndsWith("deadlock, nobody can go on: rank 0 waits in barrier() on group {0,1} "
                            "for rank 1; rank 1 waits in barrier() on group {1,2} for rank 2; rank "
                            "2 waits in barrier() on group {0,2} for rank 0")));
}

TEST(ThreadDeadlockTest, WhoWaitsForOneOfThemElsewhereIsNotInIt) {
  run_ranks(
      3,
      [](World& world) {
        if (world.rank() != 2) {
          const Group own = world.group(world.rank() == 0 ? Sizes{0, 1} : Sizes{1, 0});
          EXPECT_THAT(thrown_by<CommError>([&] { barrier(own); }),
                      AllOf(HasSubstr("deadlock, nobody can go on: rank 0 waits"),
                            ::testing::Not(HasSubstr("rank 2"))));
        }
        // The one that it waits for has handled the error, and comes.
        if (world.rank() == 1) return;
        EXPECT_NO_THROW(barrier(world.group({0, 2})));
      },
      test_options());
}

/// On four ranks, one receives from another than the one that sends to it, and one is busy until the others
/// were told.
struct WrongPeer {
  std::int64_t sender = 0;
  std::int64_t receiver = 0;
  /// Is taken for the sender.
  std::int64_t peer = 0;
  std::int64_t busy = 0;
  at::Tensor x;

  explicit WrongPeer(std::uint64_t seed) {
    Random random(seed);
    Sizes ranks = {0, 1, 2, 3};
    random.shuffle(ranks);
    sender = ranks[0];
    receiver = ranks[1];
    peer = ranks[2];
    busy = ranks[3];
    x = at::zeros({random.between(0, 3), random.between(1, 3)},
                  random.pick(std::vector{at::kFloat, at::kLong, at::kBool}));
  }

  /// Runs it, with a peer that waits for the sender, or one that returns. Returns what each rank threw.
  [[nodiscard]] std::map<std::int64_t, std::string> run(bool peer_waits) const {
    std::map<std::int64_t, std::string> errors = {{sender, ""}, {receiver, ""}};
    if (peer_waits) errors[peer] = "";
    std::latch told(std::ssize(errors));
    run_ranks(
        4,
        [&](World& world) {
          if (world.rank() == busy) return told.wait();
          if (!errors.contains(world.rank())) return;
          const Told tells(told);
          errors.at(world.rank()) = thrown_by<CommError>([&] {
            if (world.rank() == sender) return send(x, receiver, world.group());
            (void)recv(x, world.rank() == receiver ? peer : sender, world.group());
          });
        },
        test_options());
    return errors;
  }
};

constexpr std::uint64_t kPeerSeeds = 20;

TEST(WrongPeerTest, IsFoundByAllThatWaitForEachOther) {
  for (std::uint64_t seed = 0; seed < kPeerSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const WrongPeer given(seed);
    const auto waits = [](std::int64_t rank, const char* call, std::int64_t other) {
      return ::testing::ContainsRegex(
          concat("rank ", rank, " waits in ", call, "[^;]* on group world for rank ", other));
    };
    for (const auto& [rank, error] : given.run(/*peer_waits=*/true)) {
      EXPECT_THAT(error, AllOf(HasSubstr("deadlock, nobody can go on: rank "),
                               waits(given.sender, "send", given.receiver),
                               waits(given.receiver, "recv", given.peer),
                               waits(given.peer, "recv", given.sender)));
    }
  }
}

TEST(WrongPeerTest, ThatHasReturnedIsNamedByBothEnds) {
  for (std::uint64_t seed = 0; seed < kPeerSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const WrongPeer given(seed);
    for (const auto& [rank, error] : given.run(/*peer_waits=*/false)) {
      EXPECT_THAT(error, HasSubstr(concat("rank ", given.peer, " has returned without calling")));
    }
  }
}

/// A collective, or a message from one member to another.
struct JointCall {
  /// The group's.
  Sizes ranks;
  bool is_message = false;
  /// Of a message; it goes from the group's first member to its last.
  std::int64_t tag = 0;

  [[nodiscard]] Sizes callers() const {
    return is_message ? Sizes{ranks.front(), ranks.back()} : ranks;
  }
  [[nodiscard]] const char* name(std::int64_t rank) const {
    if (!is_message) return "all_reduce";
    return rank == ranks.front() ? "send" : "recv";
  }
  /// What a caller's parts of such calls are counted by.
  [[nodiscard]] std::string key(std::int64_t rank) const {
    return concat(name(rank), joined(ranks, ","), '#', tag);
  }
};

/// Begins one's part of a call, or waits for it.
struct CallStep {
  std::size_t call = 0;
  bool is_wait = false;
};

/// What ranks do, step by step.
struct Programs {
  std::vector<JointCall> calls;
  std::vector<std::vector<CallStep>> steps;
};

/// A rank's steps, given its calls in order: it begins each and waits for it, or for some of them later.
std::vector<CallStep> random_steps(const std::vector<std::size_t>& calls, Random& random) {
  std::vector<CallStep> steps;
  for (const auto call : calls) {
    steps.push_back({call, /*is_wait=*/false});
    steps.push_back({call, /*is_wait=*/true});
  }
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    if (steps[i].is_wait && random.one_in(3)) std::swap(steps[i], steps[i + 1]);
  }
  return steps;
}

/// All make the same calls in the same order, but for two of a rank's that may be the other way round.
Programs random_thread_programs(Random& random) {
  const std::int64_t ranks = random.between(2, 5);
  Programs programs;
  std::vector<std::vector<std::size_t>> calls(static_cast<std::size_t>(ranks));
  for (std::size_t number = 0; number < 12; ++number) {
    Sizes group;
    for (std::int64_t rank = 0; rank < ranks; ++rank) group.push_back(rank);
    random.shuffle(group);
    group.resize(static_cast<std::size_t>(random.between(2, ranks)));
    if (random.one_in(2)) std::sort(group.begin(), group.end());
    const bool is_message = random.one_in(2);
    programs.calls.push_back({group, is_message, is_message ? random.between(0, 1) : 0});
    for (const auto rank : programs.calls.back().callers()) {
      calls[static_cast<std::size_t>(rank)].push_back(number);
    }
  }
  for (auto& own : calls) {
    if (own.size() > 1 && random.one_in(3)) {
      const auto place = static_cast<std::size_t>(random.between(0, std::ssize(own) - 2));
      std::swap(own[place], own[place + 1]);
    }
    programs.steps.push_back(random_steps(own, random));
  }
  return programs;
}

/// Lets all ranks go on for as long as any of them can. Returns in what those wait that cannot.
std::map<std::int64_t, std::string> find_stuck(const Programs& programs) {
  const std::size_t ranks = programs.steps.size();
  std::vector<std::size_t> next(ranks);
  std::vector<std::map<std::string, int>> begun(ranks);
  std::vector<std::map<std::size_t, int>> numbers(ranks);
  const auto can_end = [&](std::size_t rank, std::size_t number) {
    const JointCall& call = programs.calls[number];
    const auto callers = call.callers();
    return std::all_of(callers.begin(), callers.end(), [&](std::int64_t other) {
      return begun[static_cast<std::size_t>(other)][call.key(other)] >= numbers[rank][number];
    });
  };
  for (bool any = true; any;) {
    any = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (next[rank] == programs.steps[rank].size()) continue;
      const auto [number, is_wait] = programs.steps[rank][next[rank]];
      if (is_wait && !can_end(rank, number)) continue;
      if (!is_wait) {
        const auto key = programs.calls[number].key(static_cast<std::int64_t>(rank));
        numbers[rank][number] = ++begun[rank][key];
      }
      ++next[rank];
      any = true;
    }
  }
  std::map<std::int64_t, std::string> stuck;
  for (std::size_t i = 0; i < ranks; ++i) {
    if (next[i] == programs.steps[i].size()) continue;
    const auto rank = static_cast<std::int64_t>(i);
    const JointCall& call = programs.calls[programs.steps[i][next[i]].call];
    const bool is_world =
        call.ranks.size() == ranks && std::is_sorted(call.ranks.begin(), call.ranks.end());
    stuck[rank] = concat(call.name(rank), "(x) on group ",
                         is_world ? "world" : concat('{', joined(call.ranks, ","), '}'));
  }
  return stuck;
}

detail::PendingPtr begin_part(const JointCall& call, World& world) {
  const Group group = world.group(call.ranks);
  auto& transport = detail::connect(group);
  const at::Tensor data = at::ones({2});
  const char* name = call.name(world.rank());
  transport.check({name, "x"});
  if (!call.is_message) return transport.all_reduce(data, ReduceOp::sum);
  if (world.rank() == call.ranks.front()) return transport.send(data, group.size() - 1, call.tag);
  return transport.receive(data, 0, call.tag);
}

/// Runs the programs on threads. Returns what the ranks threw.
std::vector<std::string> run_programs(const Programs& programs) {
  std::vector<std::string> errors(programs.steps.size());
  const auto run = [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    std::map<std::size_t, detail::PendingPtr> begun;
    try {
      for (const auto& [number, is_wait] : programs.steps[rank]) {
        if (!is_wait) begun[number] = begin_part(programs.calls[number], world);
        if (is_wait) begun.at(number)->wait();
      }
    } catch (const CommError& error) {
      errors[rank] = error.what();
      throw;
    }
  };
  try {
    run_ranks(std::ssize(programs.steps), run, test_options());
  } catch (const CommError&) {  // NOLINT(bugprone-empty-catch): it is among the errors.
  }
  return errors;
}

/// Expects all that an error accuses to be stuck where it says. Returns how many it accuses.
int check_accused(const std::string& error, const std::map<std::int64_t, std::string>& stuck) {
  static const std::regex kWait(R"(rank (\d+) waits in (\w+\(x\) on group [^ ]+) for rank (\d+))");
  int accused = 0;
  for (std::sregex_iterator it(error.begin(), error.end(), kWait), end; it != end; ++it) {
    const auto found = stuck.find(std::stoll((*it)[1]));
    EXPECT_TRUE(found != stuck.end() && found->second == (*it)[2]) << error;
    EXPECT_TRUE(stuck.contains(std::stoll((*it)[3]))) << error;
    ++accused;
  }
  return accused;
}

TEST(ThreadDeadlockTest, IsFoundWheneverThereIsOneAndNeverElse) {
  int deadlocks = 0;
  int ends = 0;
  for (std::uint64_t seed = 0; seed < 500 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Programs programs = random_thread_programs(random);
    const auto stuck = find_stuck(programs);
    const auto errors = run_programs(programs);
    int accused = 0;
    for (const auto& error : errors) {
      EXPECT_THAT(error, ::testing::Not(HasSubstr("in time")));
      accused += check_accused(error, stuck);
    }
    EXPECT_EQ(accused > 0, !stuck.empty());
    const bool all_end = std::all_of(errors.begin(), errors.end(),
                                     [](const std::string& error) { return error.empty(); });
    EXPECT_EQ(all_end, stuck.empty());
    ++(stuck.empty() ? ends : deadlocks);
  }
  EXPECT_GT(deadlocks, 100);
  EXPECT_GT(ends, 100);
}

}  // namespace
}  // namespace tessera::test
