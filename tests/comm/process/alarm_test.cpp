#include "tessera/comm/c10d/alarm.h"

#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>

namespace tessera::detail {
namespace {

/// Nothing but an abort ends a wait for it, and only one each.
class EndlessWork : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return aborted_; });
    aborted_ = false;
    return false;
  }

  void abort() override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
};

TEST(AlarmTest, WakesWhoWaitsAgainAndAgain) {
  const auto alarm = Alarm::shared();
  const auto work = c10::make_intrusive<EndlessWork>();
  for (int i = 0; i < 2; ++i) {
    const Alarm::Watch watch(*alarm, *work);
    EXPECT_FALSE(work->wait(std::chrono::milliseconds(0)));
    EXPECT_FALSE(work->wait(std::chrono::milliseconds(0)));
  }
}

TEST(AlarmTest, IsSharedWhileItIsHeld) {
  const auto alarm = Alarm::shared();
  EXPECT_EQ(alarm, Alarm::shared());
}

TEST(AlarmTest, WakesEverybodyWhoWaits) {
  const auto alarm = Alarm::shared();
  const auto wait_once = [&] {
    const auto work = c10::make_intrusive<EndlessWork>();
    const Alarm::Watch watch(*alarm, *work);
    EXPECT_FALSE(work->wait(std::chrono::milliseconds(0)));
  };
  std::thread other(wait_once);
  wait_once();
  other.join();
}

}  // namespace
}  // namespace tessera::detail
