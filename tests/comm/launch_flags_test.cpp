#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "tessera/comm/launch_environment.h"

namespace tessera::detail {
namespace {

using std::chrono::milliseconds;
using test::throws_invalid_argument;

/// A command line as `main` gets it.
class CommandLine {
 public:
  CommandLine(std::initializer_list<const char*> words)
      : CommandLine(std::vector<std::string>(words.begin(), words.end())) {}
  explicit CommandLine(std::vector<std::string> words) : words_(std::move(words)) {
    for (auto& word : words_) pointers_.push_back(word.data());
    count_ = static_cast<int>(pointers_.size());
    pointers_.push_back(nullptr);
  }

  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  LaunchFlags take() { return take_launch_flags(count_, pointers_.data()); }
  /// What is left, up to the null pointer that ends it.
  [[nodiscard]] std::vector<std::string> left() const {
    EXPECT_EQ(pointers_[static_cast<std::size_t>(count_)], nullptr);
    return {pointers_.begin(), pointers_.begin() + count_};
  }

 private:
  std::vector<std::string> words_;
  std::vector<char*> pointers_;
  int count_ = 0;
};

using Words = std::vector<std::string>;

TEST(LaunchFlagsTest, AreTakenOutOfTheArguments) {
  CommandLine line{"prog", "--ranks", "4",         "input", "--engine",
                   "gloo", "-x",      "--timeout", "2.5",   "--other"};
  const auto flags = line.take();
  EXPECT_EQ(flags.ranks, 4);
  EXPECT_EQ(flags.engine, EngineKind::gloo);
  EXPECT_EQ(flags.timeout, milliseconds(2500));
  EXPECT_EQ(line.left(), (Words{"prog", "input", "-x", "--other"}));
}

TEST(LaunchFlagsTest, MayHaveTheirValueAttached) {
  CommandLine line{"prog", "--ranks=12", "--engine=threads", "--timeout=60"};
  const auto flags = line.take();
  EXPECT_EQ(flags.ranks, 12);
  EXPECT_EQ(flags.engine, EngineKind::threads);
  EXPECT_EQ(flags.timeout, milliseconds(60000));
  EXPECT_EQ(line.left(), Words{"prog"});
}

TEST(LaunchFlagsTest, OthersAreLeftAlone) {
  const Words words = {"prog", "--rank=1", "-ranks", "2", "--ranksx", "", "--engines", "ranks"};
  CommandLine line{"prog", "--rank=1", "-ranks", "2", "--ranksx", "", "--engines", "ranks"};
  const auto flags = line.take();
  EXPECT_EQ(flags.ranks, std::nullopt);
  EXPECT_EQ(flags.engine, std::nullopt);
  EXPECT_EQ(flags.timeout, std::nullopt);
  EXPECT_EQ(line.left(), words);
}

TEST(LaunchFlagsTest, DoubleDashEndsThem) {
  CommandLine line{"prog", "--ranks", "2", "--", "--ranks", "3", "--engine"};
  EXPECT_EQ(line.take().ranks, 2);
  EXPECT_EQ(line.left(), (Words{"prog", "--", "--ranks", "3", "--engine"}));
}

TEST(LaunchFlagsTest, ProgramNameIsNoFlag) {
  CommandLine line{"--ranks", "3"};
  EXPECT_EQ(line.take().ranks, std::nullopt);
  EXPECT_EQ(line.left(), (Words{"--ranks", "3"}));
  CommandLine nothing{};
  EXPECT_EQ(nothing.take().ranks, std::nullopt);
}

TEST(LaunchFlagsTest, ShortTimesAreRoundedUp) {
  CommandLine line{"prog", "--timeout", "1e-9"};
  EXPECT_EQ(line.take().timeout, milliseconds(1));
}

TEST(LaunchFlagsTest, WrongOnesAreRefused) {
  const std::string count = " given; an integer from 1 to 16777216 is expected";
  const std::string time = " given; a number of seconds above 0 and up to 10000000 is expected";
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"prog", "--ranks"}, "--ranks is given without a value"},
      {{"prog", "x", "--engine"}, "--engine is given without a value"},
      {{"prog", "--ranks", "0"}, "--ranks 0" + count},
      {{"prog", "--ranks="}, "--ranks " + count},
      {{"prog", "--ranks=+3"}, "--ranks +3" + count},
      {{"prog", "--ranks=3x"}, "--ranks 3x" + count},
      {{"prog", "--ranks", "--engine"}, "--ranks --engine" + count},
      {{"prog", "--engine", "MPI"}, "--engine MPI given; threads, gloo or mpi is expected"},
      {{"prog", "--timeout", "-1"}, "--timeout -1" + time},
      {{"prog", "--timeout=nan"}, "--timeout nan" + time},
      {{"prog", "--timeout=1e300"}, "--timeout 1e300" + time},
      {{"prog", "--timeout=5s"}, "--timeout 5s" + time},
      {{"prog", "--ranks", "2", "--ranks=2"}, "--ranks is given twice"},
      {{"prog", "--engine=mpi", "--engine", "gloo"}, "--engine is given twice"},
  };
  for (const auto& [words, message] : cases) {
    CommandLine line(words);
    EXPECT_THAT([&line] { return line.take(); }, throws_invalid_argument("launch: " + message));
    EXPECT_EQ(line.left(), words);
  }
}

}  // namespace
}  // namespace tessera::detail
