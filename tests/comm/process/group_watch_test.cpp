#include "tessera/comm/c10d/group_watch.h"

#include <algorithm>
#include <map>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"

namespace tessera::detail {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

/// A board on which others say something when it has been refreshed for the first time.
class LateBoard : public NoBoard {
 public:
  explicit LateBoard(std::map<std::int64_t, RankStatus> said = {}) : said_(std::move(said)) {}

  std::optional<RankStatus> latest(std::int64_t rank) override {
    const auto found = said_.find(rank);
    return is_refreshed_ && found != said_.end() ? std::optional(found->second) : std::nullopt;
  }
  void refresh(milliseconds /*limit*/) override { is_refreshed_ = true; }

 private:
  std::map<std::int64_t, RankStatus> said_;
  bool is_refreshed_ = false;
};

/// Of a process that is there, as this one is; or of one on another machine, which cannot be seen.
ProcessIdentity seen() { return this_process(); }
ProcessIdentity unseen() {
  ProcessIdentity process = this_process();
  ++process.machine;
  return process;
}

constexpr milliseconds kTimeout{10'000};

/// How a call of rank 0 fails, with these others, when it has waited for the whole time limit.
struct Failure {
  std::string words;
  /// How long it took to find out why.
  milliseconds searched;
};

Failure fail_late(const std::vector<ProcessIdentity>& others, const std::string& engine_words,
                  std::map<std::int64_t, RankStatus> said = {}) {
  std::vector<ProcessIdentity> processes = {this_process()};
  processes.insert(processes.end(), others.begin(), others.end());
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < std::ssize(processes); ++rank) ranks.push_back(rank);
  GroupWatch watch(
      "world", ranks, kTimeout, /*is_compared=*/true,
      std::make_shared<Peers>(0, processes, std::make_shared<LateBoard>(std::move(said))));
  WatchedCall call = watch.begin("barrier");
  call.begin -= kTimeout;
  try {
    watch.fail(call, engine_words);
  } catch (const CommError& error) {
    return {error.what(), error.elapsed() - kTimeout};
  }
}

TEST(GroupWatchTest, AfterTheTimeLimitARankThatIsThereGetsTimeToAnswerOnly) {
  // Every time it may be this process that is late, so the best counts.
  milliseconds shortest = milliseconds::max();
  for (int i = 0; i < 10 && shortest >= GroupWatch::kGrace; ++i) {
    const Failure failure = fail_late({seen()}, "");
    EXPECT_THAT(failure.words, HasSubstr("rank 1 did not come (process "));
    EXPECT_THAT(failure.words, HasSubstr("is running); the time limit is 10000 ms"));
    EXPECT_GE(failure.searched, GroupWatch::kAnswer);
    shortest = std::min(shortest, failure.searched);
  }
  EXPECT_LT(shortest, GroupWatch::kGrace);
}

TEST(GroupWatchTest, ARankThatMayBeEndingGetsLonger) {
  // On another machine, or here while the engine has noticed something.
  EXPECT_GE(fail_late({unseen()}, "").searched, GroupWatch::kGrace);
  EXPECT_GE(fail_late({seen()}, "connection reset").searched, GroupWatch::kGrace);
}

TEST(GroupWatchTest, WhoAnswersAfterTheTimeLimitIsNotBlamed) {
  RankStatus failed;
  failed.kind = RankStatus::Kind::failed;
  failed.failed_groups = group_key({0, 1, 2});
  const Failure failure = fail_late({seen(), seen()}, "", {{1, failed}});
  EXPECT_THAT(failure.words, HasSubstr("rank 2 did not come (process "));
  EXPECT_THAT(failure.words, Not(HasSubstr("rank 1 ")));
}

TEST(GroupWatchTest, WhoIsFoundToHaveLeftAfterTheTimeLimitIsNamed) {
  RankStatus left;
  left.kind = RankStatus::Kind::left;
  left.reason = "no more data";
  const Failure failure = fail_late({seen(), seen()}, "", {{1, left}});
  EXPECT_THAT(failure.words, HasSubstr("rank 1 failed: no more data"));
  EXPECT_THAT(failure.words, Not(HasSubstr("rank 2 ")));
}

TEST(GroupWatchTest, WhoMadeTheCallBeforeItLeftIsNotSaidToHaveLeftItOut) {
  RankStatus left;
  left.kind = RankStatus::Kind::left;
  EXPECT_THAT(fail_late({seen()}, "", {{1, left}}).words,
              HasSubstr("rank 1 has returned without calling it"));
  left.calls = "{0,1}=1;";
  EXPECT_THAT(fail_late({seen()}, "", {{1, left}}).words,
              HasSubstr("rank 1 has made this call and returned"));
}

/// Whether waiting is hopeless for a message from rank 1, which has left, having made these calls.
bool is_hopeless_from_who_left(const std::string& calls, bool is_compared = true) {
  RankStatus left;
  left.kind = RankStatus::Kind::left;
  left.calls = calls;
  const auto board = std::make_shared<LateBoard>(std::map<std::int64_t, RankStatus>{{1, left}});
  board->refresh({});
  GroupWatch watch("world", {0, 1}, kTimeout, is_compared,
                   std::make_shared<Peers>(0, std::vector{seen(), seen()}, board));
  const WatchedCall call = watch.begin(
      {.is_send = false, .peer = 1, .tag = 7, .is_compared = is_compared}, "float32[4]");
  return watch.is_hopeless(call, milliseconds(0));
}

TEST(GroupWatchTest, AMessageFromWhoHasLeftMayBeOnItsWayUnlessItWasNeverSent) {
  EXPECT_TRUE(is_hopeless_from_who_left(""));
  EXPECT_TRUE(is_hopeless_from_who_left("{0,1}=3;{0,1}1>0#8s=1;"));
  EXPECT_FALSE(is_hopeless_from_who_left("{0,1}1>0#7s=1;"));
  // Where not all are counted, it may have been sent.
  EXPECT_FALSE(is_hopeless_from_who_left(concat(kUncounted, "=1;")));
  EXPECT_FALSE(is_hopeless_from_who_left("", /*is_compared=*/false));
}

/// A board that keeps what was posted.
class KeepingBoard : public NoBoard {
 public:
  void post(const RankStatus& status) override { posts.push_back(status); }

  std::vector<RankStatus> posts;
};

TEST(GroupWatchTest, WhoGivesUpInAGroupThatHasFailedWaitsNoLonger) {
  const auto board = std::make_shared<KeepingBoard>();
  GroupWatch watch("world", {0, 1}, kTimeout, /*is_compared=*/true,
                   std::make_shared<Peers>(0, std::vector{seen(), seen()}, board));
  const auto receive = [&](std::int64_t tag) {
    return watch.begin({.is_send = false, .peer = 1, .tag = tag, .is_compared = true},
                       "float32[4]");
  };
  const WatchedCall first = receive(1);
  const WatchedCall second = receive(2);
  EXPECT_THROW(watch.fail_because(first, "planted"), CommError);
  (void)watch.is_hopeless(second, kTimeout);
  EXPECT_THAT(board->posts.back().call, HasSubstr("recv("));
  EXPECT_THROW(watch.fail(second, ""), CommError);
  // Otherwise others would take it for one that can be part of a deadlock.
  EXPECT_EQ(board->posts.back().call, "");
  EXPECT_EQ(board->posts.back().awaited.number, 0);
}

TEST(PeersTest, WhoHasWaitedForNothingWrongIsSuspiciousLater) {
  Peers peers(0, {seen(), seen()}, std::make_shared<KeepingBoard>());
  EXPECT_EQ(peers.suspicion(), milliseconds(500));
  peers.post_waiting({});
  EXPECT_EQ(peers.suspicion(), milliseconds(500));
  peers.post_going_on();
  EXPECT_EQ(peers.suspicion(), milliseconds(1000));
  for (int i = 0; i < 100; ++i) peers.post_going_on();
  EXPECT_EQ(peers.suspicion(), std::chrono::hours(1));
}

TEST(PeersTest, NothingIsPostedAfterTheFarewell) {
  const auto board = std::make_shared<KeepingBoard>();
  Peers peers(0, {seen(), seen()}, board);
  peers.post_left("no more data");
  peers.post_waiting({});
  peers.post_going_on();
  peers.post_failed({}, "{0,1}");
  ASSERT_EQ(board->posts.size(), 1U);
  EXPECT_EQ(board->posts[0].reason, "no more data");
}

}  // namespace
}  // namespace tessera::detail
