#include "tessera/comm/log.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "tessera/comm/world.h"

namespace tessera {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() { set_log_level(LogLevel::warning); }
  ~LogTest() override {
    set_log_sink({});
    set_log_level(LogLevel::warning);
    detail::set_log_rank({});
  }

  /// Keeps the lines that would be written.
  void keep_lines() {
    set_log_sink([this](const LogMessage& message) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(to_string(message));
    });
  }

  std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// Counts how often it is streamed.
struct Costly {
  int* streamed;
};
std::ostream& operator<<(std::ostream& os, const Costly& costly) {
  ++*costly.streamed;
  return os;
}

using Lines = std::vector<std::string>;

TEST_F(LogTest, LevelsHaveNames) {
  for (const auto level : {LogLevel::error, LogLevel::warning, LogLevel::info, LogLevel::debug}) {
    EXPECT_EQ(parse_log_level(log_level_name(level)), level);
  }
  EXPECT_THAT([] { return parse_log_level("loud"); },
              test::throws_invalid_argument(
                  "TESSERA_LOG=loud given; error, warning, info or debug is expected"));
}

TEST_F(LogTest, WritesLinesToStderr) {
  testing::internal::CaptureStderr();
  log_message(LogLevel::warning, "dim ", 3, " of ", 4);
  log_message(LogLevel::info, "not this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tessera warning: dim 3 of 4\n");
}

TEST_F(LogTest, LevelDecidesWhatIsWritten) {
  keep_lines();
  set_log_level(LogLevel::error);
  log_message(LogLevel::warning, "1");
  log_message(LogLevel::error, "2");
  set_log_level(LogLevel::debug);
  log_message(LogLevel::debug, "3");
  EXPECT_EQ(lines_, (Lines{"tessera error: 2", "tessera debug: 3"}));
}

TEST_F(LogTest, UnwrittenPartsAreNotStreamed) {
  int streamed = 0;
  log_message(LogLevel::debug, Costly{&streamed});
  EXPECT_EQ(streamed, 0);
  keep_lines();
  log_message(LogLevel::error, Costly{&streamed});
  EXPECT_EQ(streamed, 1);
}

TEST_F(LogTest, RanksAreNamed) {
  keep_lines();
  run_ranks(3, [](World&) { log_message(LogLevel::warning, "here"); });
  std::sort(lines_.begin(), lines_.end());
  EXPECT_EQ(lines_, (Lines{"[rank 0] tessera warning: here", "[rank 1] tessera warning: here",
                           "[rank 2] tessera warning: here"}));
}

TEST_F(LogTest, ProcessesRankIsThatOfItsOtherThreads) {
  keep_lines();
  detail::set_log_rank(5);
  log_message(LogLevel::error, "a");
  detail::set_log_rank({});
  log_message(LogLevel::error, "b");
  EXPECT_EQ(lines_, (Lines{"[rank 5] tessera error: a", "tessera error: b"}));
}

TEST_F(LogTest, WhatASinkThrowsIsDropped) {
  set_log_sink([](const LogMessage&) { throw std::runtime_error("full"); });
  EXPECT_NO_THROW(log_message(LogLevel::error, "x"));
}

TEST_F(LogTest, SinkMayBeReplacedWhileRanksLog) {
  std::atomic<int> count = 0;
  set_log_sink([&](const LogMessage&) { ++count; });
  run_ranks(4, [&](World& world) {
    for (int i = 0; i < 200; ++i) {
      log_message(LogLevel::error, i);
      if (world.rank() == 0) set_log_sink([&](const LogMessage&) { ++count; });
    }
  });
  EXPECT_EQ(count, 800);
}

}  // namespace
}  // namespace tessera
