#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/base/hash.h"
#include "tessera/comm/launch_environment.h"
#include "tessera/comm/launch_values.h"

namespace tessera::detail {
namespace {

const std::vector<std::string> kNames = {"RANK",
                                         "WORLD_SIZE",
                                         "LOCAL_RANK",
                                         "LOCAL_WORLD_SIZE",
                                         "MASTER_ADDR",
                                         "MASTER_PORT",
                                         "TORCHELASTIC_RUN_ID",
                                         "TORCHELASTIC_USE_AGENT_STORE",
                                         "TORCHELASTIC_RESTART_COUNT",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "MPI_LOCALRANKID",
                                         "MPI_LOCALNRANKS",
                                         "SLURM_PROCID",
                                         "SLURM_NTASKS",
                                         "SLURM_LOCALID",
                                         "SLURM_JOB_NODELIST",
                                         "SLURM_STEP_NODELIST",
                                         "SLURM_NODELIST",
                                         "SLURM_JOB_ID",
                                         "SLURM_STEP_ID",
                                         "SLURM_STEPID",
                                         "SLURM_STEP_NUM_TASKS",
                                         "SLURM_STEP_NUM_NODES",
                                         "SLURM_NNODES",
                                         "TESSERA_RANKS",
                                         "TESSERA_ENGINE",
                                         "TESSERA_TIMEOUT",
                                         "TESSERA_CHECK",
                                         "TESSERA_RENDEZVOUS_FILE"};

const std::vector<std::string> kValues = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "4",
                                          "8",
                                          "",
                                          "-1",
                                          "65535",
                                          "65536",
                                          "4294967290",
                                          "2147483648",
                                          "9223372036854775807",
                                          "99999999999999999999",
                                          "1.5",
                                          "1e3",
                                          "inf",
                                          "nan",
                                          "0x4",
                                          " 1",
                                          "1 ",
                                          "True",
                                          "False",
                                          "threads",
                                          "gloo",
                                          "mpi",
                                          "127.0.0.1",
                                          "node[1-4]",
                                          "node[",
                                          "a,b",
                                          "[",
                                          "]",
                                          "[[1]]",
                                          std::string("1\0", 2),
                                          "\xff\xfe",
                                          std::string(5000, '9')};

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  [[nodiscard]] std::size_t below(std::size_t limit) {
    state_ = hash_combine(state_, 1);
    return state_ % limit;
  }
  [[nodiscard]] const std::string& of(const std::vector<std::string>& choices) {
    return choices[below(choices.size())];
  }
  /// Mostly one that some launcher could set.
  [[nodiscard]] std::string value() {
    if (below(8) != 0) return std::to_string(below(4));
    if (below(4) != 0) return of(kValues);
    std::string text(below(12), ' ');
    for (auto& letter : text) letter = static_cast<char>(below(256));
    return text;
  }

 private:
  std::size_t state_;
};

/// Some variables, often complete sets of one launcher or another.
Variables random_variables(Random& random) {
  Variables variables;
  const std::size_t count = random.below(8);
  for (std::size_t i = 0; i < count; ++i) variables[random.of(kNames)] = random.value();
  const std::vector<std::vector<std::string>> sets = {
      {"RANK", "WORLD_SIZE", "MASTER_PORT"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_JOB_ID"}};
  for (const auto& names : sets) {
    if (random.below(3) != 0) continue;
    for (const auto& name : names) variables[name] = std::to_string(random.below(4));
    variables[names[1]] = std::to_string(3 + random.below(3));
  }
  return variables;
}

LaunchFlags random_flags(Random& random) {
  LaunchFlags flags;
  if (random.below(4) == 0) flags.ranks = static_cast<std::int64_t>(1 + random.below(6000));
  if (random.below(4) == 0) flags.engine = static_cast<EngineKind>(random.below(3));
  return flags;
}

void expect_sound(const LaunchDecision& decision) {
  EXPECT_GE(decision.rank, 0);
  EXPECT_LT(decision.rank, decision.size);
  EXPECT_LE(decision.size, kMostRanks);
  EXPECT_FALSE(decision.source.empty());
  EXPECT_LT(decision.local_rank.value_or(0), decision.size);
  EXPECT_LE(decision.local_size.value_or(1), decision.size);
  if (decision.engine == EngineKind::threads) {
    EXPECT_EQ(decision.rank, 0);
    EXPECT_LE(decision.size, kMostThreads);
  }
  const bool meets = decision.engine == EngineKind::gloo && decision.size > 1;
  EXPECT_EQ(meets, decision.master_port != 0);
  EXPECT_EQ(meets, !decision.master_address.empty());
}

TEST(LaunchFuzzTest, AnyEnvironmentIsDecidedOrRefused) {
  std::int64_t decided = 0;
  std::int64_t refused = 0;
  for (std::uint64_t seed = 0; seed < 50'000; ++seed) {
    Random random(seed);
    const Variables variables = random_variables(random);
    const LaunchFlags flags = random_flags(random);
    try {
      SCOPED_TRACE(seed);
      expect_sound(decide_launch(variables, flags, random.below(2) == 0));
      ++decided;
    } catch (const InvalidArgument& error) {
      ++refused;
      ASSERT_TRUE(std::string(error.what()).starts_with("launch: ")) << seed;
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  // The samples are worth something only if there are many of both kinds.
  EXPECT_GT(decided, 8'000);
  EXPECT_GT(refused, 8'000);
}

TEST(LaunchFuzzTest, AnyCommandLineIsTakenOrRefused) {
  const std::vector<std::string> words = {"--ranks", "--ranks=",  "--ranks=2", "--engine",
                                          "gloo",    "--timeout", "--engine=", "--timeout=1",
                                          "--",      "-",         "",          "--rank"};
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    Random random(seed);
    std::vector<std::string> line(random.below(7));
    for (auto& word : line) word = random.below(4) == 0 ? random.value() : random.of(words);
    for (auto& word : line) word.resize(std::min(word.size(), word.find('\0')));
    std::vector<char*> pointers;
    for (auto& word : line) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    int count = static_cast<int>(line.size());
    try {
      (void)take_launch_flags(count, pointers.data());
      ASSERT_LE(count, static_cast<int>(line.size()));
      ASSERT_EQ(pointers[static_cast<std::size_t>(count)], nullptr);
    } catch (const InvalidArgument&) {
      ASSERT_EQ(count, static_cast<int>(line.size()));
    }
  }
}

TEST(LaunchFuzzTest, AnyListOfHostsIsReadOrRefused) {
  const std::string letters = "ab01-,[] .";
  for (std::uint64_t seed = 0; seed < 30'000; ++seed) {
    Random random(seed);
    std::string list(random.below(12), ' ');
    for (auto& letter : list) letter = letters[random.below(letters.size())];
    try {
      const std::string host = read_first_host("LIST=", list);
      ASSERT_FALSE(host.empty()) << list;
      ASSERT_EQ(host.find_first_of("[], "), std::string::npos) << list;
    } catch (const InvalidArgument&) {
    }
  }
}

}  // namespace
}  // namespace tessera::detail
