#include "comm/process/deadlock_cases.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/ones.h>

#include "comm/process/mismatch_calls.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/world.h"

namespace tessera::test {
namespace {

/// Who does what in a case.
struct Roles {
  std::int64_t odd = 0;
  /// Sends to the odd one in cases of messages.
  std::int64_t sender = 0;
  /// Is taken for the sender by the odd one, and waits for the real one.
  std::int64_t third = 0;
};

Roles choose_roles(std::int64_t members, Random& random) {
  const std::int64_t odd = random.between(0, members - 1);
  return {odd, (odd + 1) % members, (odd + 2) % members};
}

/// The member's number in the other group of the same ranks.
std::int64_t place_in(const Group& group, const Group& usual, std::int64_t member) {
  const auto rank = usual.ranks()[static_cast<std::size_t>(member)];
  const auto& ranks = group.ranks();
  return std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
}

/// The part of the calling member in a case of messages. All that have none wait for the others.
void exchange_messages(const std::string& kind, const Roles& roles, const Call& call,
                       const Group& usual, const Group& own) {
  const auto pass = [&](bool is_send, std::int64_t peer, std::int64_t tag = 0) {
    perform(call, {is_send, place_in(own, usual, peer), tag}, own);
  };
  const bool is_odd = usual.index() == roles.odd;
  if (kind == "peer" && usual.index() == roles.third) return pass(false, roles.sender);
  if (!is_odd && usual.index() != roles.sender) return barrier(usual);
  if (kind == "order") {
    // The first to be sent is the last to be received.
    pass(!is_odd, is_odd ? roles.sender : roles.odd, is_odd ? 2 : 1);
    pass(!is_odd, is_odd ? roles.sender : roles.odd, is_odd ? 1 : 2);
  } else if (is_odd) {
    pass(/*is_send=*/kind == "op", kind == "peer" ? roles.third : roles.sender);
  } else {
    pass(/*is_send=*/true, roles.odd);
  }
}

/// What the odd member waits in, and what those wait in that it keeps waiting.
struct Waits {
  std::string odd;
  std::string usual;
};

Waits expected_waits(const Mismatch& mismatch) {
  if (mismatch.collective != "message") {
    const std::string name = c10d_name(mismatch.collective);
    return {name, name};
  }
  return {mismatch.kind == "op" ? "send" : "recv", "send"};
}

/// A sign that rank 0 gives to the others without a call: a file.
class Sign {
 public:
  /// All members of the group make one together.
  explicit Sign(const Group& group) : is_giver_(group.index() == 0) {
    std::string folder;
    if (is_giver_) {
      folder = (std::filesystem::temp_directory_path() / "tessera_sign_XXXXXX").string();
      EXPECT_NE(mkdtemp(folder.data()), nullptr);
    }
    folder_ = all_gather_object(folder, group).front();
  }
  /// Outlives the others' waits, as they meet the giver in calls after those.
  ~Sign() {
    std::error_code ignored;
    if (is_giver_) std::filesystem::remove_all(folder_, ignored);
  }
  Sign(const Sign&) = delete;
  Sign& operator=(const Sign&) = delete;

  void give() const { std::ofstream(folder_ / "given") << "yes"; }

  /// Waits until it was given. When that takes longer than `limit`, the giver is at fault, and tells.
  void wait_for(std::chrono::milliseconds limit) const {
    const auto begin = std::chrono::steady_clock::now();
    while (!std::filesystem::exists(folder_ / "given")) {
      if (std::chrono::steady_clock::now() - begin > limit) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  bool is_giver_;
  std::filesystem::path folder_;
};

/// What the call throws; empty when it does not.
std::string thrown_in(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

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

std::vector<Mismatch> all_deadlocks() {
  std::set<std::string> collectives;
  for (const auto& mismatch : all_mismatches()) collectives.insert(mismatch.collective);
  std::vector<Mismatch> all;
  for (const auto& collective : collectives) all.push_back({collective, "group"});
  for (const char* kind : {"op", "order", "peer"}) all.push_back({"message", kind});
  return all;
}

void check_deadlock(const GroupPair& groups, const Mismatch& mismatch, std::uint64_t seed) {
  const Group usual = World::current().group(groups.first);
  const Group other = World::current().group(groups.second);
  const std::string& collective = mismatch.collective;
  const std::string& kind = mismatch.kind;
  SCOPED_TRACE(
      concat(collective, ' ', kind, " seed ", seed, " groups ", usual.name(), ' ', other.name()));
  Random random(seed);
  const Roles roles = choose_roles(usual.size(), random);
  const Call call = usual_call(collective, usual.size(), random);
  const bool is_odd = usual.index() == roles.odd;
  const Group& own = is_odd && kind == "group" ? other : usual;
  // Half the time the groups have not been used before.
  if (random.one_in(2)) {
    barrier(usual);
    barrier(other);
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = comm_error_of(
      [&] {
        if (collective != "message") return perform(call, own);
        exchange_messages(kind, roles, call, usual, own);
      },
      own);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, World::current().options().timeout / 2);
  const auto odd_rank = usual.ranks()[static_cast<std::size_t>(roles.odd)];
  const Waits waits = expected_waits(mismatch);
  using testing::HasSubstr;
  EXPECT_THAT(message, HasSubstr("deadlock, nobody can go on: rank "));
  const Group& where = kind == "group" ? other : usual;
  EXPECT_THAT(message, testing::AnyOf(HasSubstr(concat("rank ", odd_rank, " waits in ", waits.odd)),
                                      HasSubstr(concat("rank ", odd_rank, " waits in connect("))));
  EXPECT_THAT(message, HasSubstr(concat(") on group ", where.name(), " for rank ")));
  EXPECT_THAT(message, HasSubstr(concat(") on group ", usual.name(), " for rank ", odd_rank)));
  EXPECT_THAT(message, testing::AnyOf(HasSubstr(concat(" waits in ", waits.usual)),
                                      HasSubstr(" waits in connect(")));
  EXPECT_THROW(barrier(own), CommError) << "a failed group can be used";
}

void check_deadlocks(const std::vector<GroupPair>& groups, std::size_t first) {
  const auto deadlocks = all_deadlocks();
  const std::size_t end = std::min(first + groups.size(), deadlocks.size() * kMismatchSeeds);
  for (std::size_t number = first; number < end; ++number) {
    check_deadlock(groups[number - first], deadlocks[number % deadlocks.size()], number);
    // In step, so that nobody is late for the next one.
    barrier(World::current().group());
  }
}

void check_slow_ranks(World& world, std::uint64_t seed) {
  Random random(seed);
  const auto groups = all_groups_of(world.size(), static_cast<std::size_t>(world.size()));
  const MeshShape mesh({world.size()});
  const Layout rows(mesh, {Shard(0)}, {kRows, kRows});
  const Layout columns(mesh, {Shard(1)}, {kRows, kRows});
  at::Tensor under_way;
  for (int round = 0; round < 60; ++round) {
    const auto& ranks = random.pick(groups);
    const Call call =
        usual_call(round % 2 == 0 ? "all_gather" : "broadcast", std::ssize(ranks), random);
    const std::int64_t slow = random.between(0, world.size() - 1);
    // Longer than it takes to become suspicious.
    if (round % 6 == 0 && world.rank() == slow) {
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
    }
    if (round % 10 == 5) {
      const at::Tensor local = at::ones({kRows / world.size(), kRows});
      EXPECT_NO_THROW((void)redistribute_local(local, rows, columns)) << "round " << round;
    }
    if (std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) continue;
    const Group group = world.group(ranks);
    EXPECT_NO_THROW(perform(call, group)) << "round " << round;
    // Waited for in other calls, and in the end.
    const at::Tensor x = at::ones({1000});
    if (round % 4 == 1) {
      EXPECT_NO_THROW(under_way = all_reduce(x, ReduceOp::sum, group, {.async_op = true}));
    }
    const bool is_first = group.index() == 0;
    if (round % 3 != 0 || (!is_first && group.index() != group.size() - 1)) continue;
    if (is_first) {
      const at::Tensor message = recv(x, group.size() - 1, group, round, {.async_op = true});
      EXPECT_NO_THROW((void)wait(message)) << "round " << round;
    } else {
      EXPECT_NO_THROW(send(x, 0, group, round)) << "round " << round;
    }
  }
}

void check_two_threads(World& world) {
  const Group group = world.group();
  const Sign refused(group);
  if (world.rank() != 0) {
    refused.wait_for(world.options().timeout / 2);
    barrier(group);
    if (world.rank() == 1) send(at::ones({2}), 0, group);
  } else {
    const at::Tensor message = recv(at::ones({2}), 1, group, 0, {.async_op = true});
    // The others come when one of the threads was refused, so the other one is in the call until then.
    std::atomic<int> refusals = 0;
    const auto call = [&] {
      const std::string error = thrown_in([&] { barrier(group); });
      if (error.empty()) return;
      ++refusals;
      const std::string words =
          ": called on rank 0 while another thread of that rank is communicating";
      EXPECT_THAT(error, testing::HasSubstr("barrier" + words));
      EXPECT_THAT(thrown_in([&] { (void)wait(message); }), testing::HasSubstr("wait" + words));
      refused.give();
    };
    std::thread other(call);
    call();
    other.join();
    EXPECT_EQ(refusals, 1);
    EXPECT_EQ(wait(message).sum().item<double>(), 2);
  }
  barrier(group);
}

}  // namespace tessera::test
