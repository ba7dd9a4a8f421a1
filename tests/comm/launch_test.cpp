#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/log.h"
#include "tessera/comm/world.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// Runs without the variables of whoever started the tests, and with a log that is kept.
class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
          "PMI_SIZE", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_PROCID", "TESSERA_RANKS",
          "TESSERA_ENGINE", "TESSERA_TIMEOUT", "TESSERA_CHECK", "TORCHELASTIC_ERROR_FILE"}) {
      ::unsetenv(name);
    }
    set_log_level(LogLevel::info);
    set_log_sink([this](const LogMessage& message) { log_.push_back(message.text); });
  }
  ~LaunchTest() override {
    set_log_sink({});
    set_log_level(LogLevel::warning);
  }

  /// Calls `launch` with these arguments, and keeps what it prints and leaves.
  int run(std::vector<std::string> words, const std::function<void(World&)>& fn,
          const WorldOptions& options = {}) {
    words.insert(words.begin(), "/some/where/program");
    std::vector<char*> pointers;
    for (auto& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    int count = static_cast<int>(words.size());
    testing::internal::CaptureStderr();
    const int code = launch(count, pointers.data(), fn, options);
    printed_ = testing::internal::GetCapturedStderr();
    left_.assign(pointers.begin() + 1, pointers.begin() + count);
    return code;
  }

  std::string printed_;
  std::vector<std::string> left_;
  std::vector<std::string> log_;
};

void nothing(World& /*world*/) {}

TEST_F(LaunchTest, RunsOneRankByDefault) {
  std::atomic<int> runs = 0;
  EXPECT_EQ(run({},
                [&](World& world) {
                  ++runs;
                  EXPECT_EQ(world.rank(), 0);
                  EXPECT_EQ(world.size(), 1);
                  EXPECT_STREQ(world.engine(), "threads");
                  EXPECT_TRUE(World::is_running());
                }),
            0);
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(World::is_running());
  EXPECT_EQ(printed_, "");
}

TEST_F(LaunchTest, RunsRanksAsThreads) {
  std::atomic<std::int64_t> sum = 0;
  EXPECT_EQ(run({"a", "--ranks", "4", "b"}, [&](World& world) { sum += world.rank() + 1; }), 0);
  EXPECT_EQ(sum, 10);
  EXPECT_EQ(left_, (std::vector<std::string>{"a", "b"}));
}

TEST_F(LaunchTest, TimeoutComesFromFlagThenVariableThenProgram) {
  milliseconds seen{0};
  const auto look = [&](World& world) { seen = world.options().timeout; };
  run({}, look, {.timeout = milliseconds(5000)});
  EXPECT_EQ(seen, milliseconds(5000));
  ::setenv("TESSERA_TIMEOUT", "7", 1);
  run({}, look, {.timeout = milliseconds(5000)});
  EXPECT_EQ(seen, milliseconds(7000));
  run({"--timeout=0.5"}, look, {.timeout = milliseconds(5000)});
  EXPECT_EQ(seen, milliseconds(500));
}

TEST_F(LaunchTest, CheckCanBeSwitchedOff) {
  bool seen = false;
  const auto look = [&](World& world) { seen = world.options().check; };
  run({}, look);
  EXPECT_TRUE(seen);
  ::setenv("TESSERA_CHECK", "0", 1);
  run({}, look);
  EXPECT_FALSE(seen);
}

TEST_F(LaunchTest, SaysWhereTheRanksComeFrom) {
  run({"--ranks", "3"}, nothing);
  EXPECT_THAT(log_, testing::Contains("launch: no launcher; engine threads, 3 rank(s) as threads"));
}

TEST_F(LaunchTest, ExceptionIsPrintedWithItsRank) {
  const auto fail = [](World& world) {
    if (world.rank() == 2) throw std::runtime_error("planted");
  };
  EXPECT_EQ(run({"--ranks", "3"}, fail), 1);
  EXPECT_EQ(printed_, "program: rank 2: planted\n");
}

TEST_F(LaunchTest, InvalidArgumentOfTheProgramIsNoBadUsage) {
  EXPECT_EQ(run({}, [](World&) { throw InvalidArgument("planted"); }), 1);
  EXPECT_EQ(printed_, "program: rank 0: planted\n");
}

TEST_F(LaunchTest, NestedExceptionsAreShown) {
  const auto fail = [](World&) {
    try {
      throw std::runtime_error("the cause");
    } catch (...) {
      std::throw_with_nested(Error("the effect"));
    }
  };
  EXPECT_EQ(run({}, fail), 1);
  EXPECT_EQ(printed_, "program: rank 0: the effect\n  caused by: the cause\n");
}

TEST_F(LaunchTest, WhatTheOthersWereToldOfAMistakeIsNoCauseOfIt) {
  const auto fail = [](World&) {
    try {
      throw CommError("the ranks do not agree", {0, "world", "broadcast", {}});
    } catch (...) {
      std::throw_with_nested(InvalidArgument("a wrong root"));
    }
  };
  const std::string file = testing::TempDir() + "tessera_launch_test_report";
  setenv("TORCHELASTIC_ERROR_FILE", file.c_str(), 1);
  EXPECT_EQ(run({}, fail), 1);
  unsetenv("TORCHELASTIC_ERROR_FILE");
  EXPECT_EQ(printed_, "program: rank 0: a wrong root\n");
  std::ostringstream report;
  report << std::ifstream(file).rdbuf();
  std::remove(file.c_str());
  // By this tessera_run tells who failed first by itself.
  EXPECT_THAT(report.str(), testing::HasSubstr("\"consequence\":false"));
}

TEST_F(LaunchTest, UnknownExceptionIsAFailureToo) {
  EXPECT_EQ(run({}, [](World&) { throw 7; }), 1);
  EXPECT_THAT(printed_, HasSubstr("program: rank 0 threw something unknown"));
}

TEST_F(LaunchTest, BadUsageIsTold) {
  bool has_run = false;
  const auto fn = [&](World&) { has_run = true; };
  EXPECT_EQ(run({"--ranks", "none"}, fn), 2);
  EXPECT_EQ(printed_,
            "program: launch: --ranks none given; an integer from 1 to 16777216 is expected\n");
  EXPECT_EQ(left_, (std::vector<std::string>{"--ranks", "none"}));
  ::setenv("RANK", "3", 1);
  EXPECT_EQ(run({}, fn), 2);
  EXPECT_EQ(printed_,
            "program: launch: RANK=3 given, but WORLD_SIZE is missing; set both or none, "
            "as torchrun does\n");
  EXPECT_FALSE(has_run);
}

TEST_F(LaunchTest, FailureIsWrittenForTorchrun) {
  const std::string path = testing::TempDir() + "launch_test_error.json";
  ::setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1);
  EXPECT_EQ(run({}, [](World&) { throw Error("planted \"quote\""); }), 1);
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  EXPECT_THAT(text, testing::StartsWith(R"({"tessera":{"time_ns":1)"));
  EXPECT_THAT(
      text, HasSubstr(R"(,"consequence":false},"message":{"message":"rank 0: planted \"quote\"")"));
  EXPECT_THAT(text, testing::ContainsRegex(R"("timestamp":"1[0-9]+")"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace tessera
