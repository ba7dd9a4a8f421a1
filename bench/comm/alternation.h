#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/comm/world.h"

namespace tessera::bench {

/// How many rounds count: 15, or `TESSERA_BENCH_ROUNDS`.
[[nodiscard]] std::int64_t rounds_to_measure();

/// Something that all ranks do together, measured.
struct Measured {
  std::string name;
  std::function<void()> run;
  /// How often `run` does it.
  std::int64_t repeats = 1;
};

/// Runs each of them once per round, in alternation, so that whatever else the machine does falls on
/// all alike. Returns for each the median over the rounds of the seconds from when the first rank
/// began until the last one ended; the same on all ranks, which must be on one host. The first
/// rounds, in which plans are made and memory is touched, do not count.
[[nodiscard]] std::vector<double> measure(const World& world, const std::vector<Measured>& all,
                                          std::int64_t rounds = rounds_to_measure());

/// Returns the processor seconds that something without communication takes on the slowest rank, the
/// median over the rounds: where ranks share cores, the clock would count the others' work too.
[[nodiscard]] double measure_processor(const World& world, const Measured& each,
                                       std::int64_t rounds = rounds_to_measure());

/// Prints columns, the first left and the others right; the first row is the heading.
void print_table(const std::vector<std::vector<std::string>>& rows);

/// `12.3 ms`, `45.6 us`.
[[nodiscard]] std::string seconds_text(double seconds);
/// `1.23`.
[[nodiscard]] std::string ratio_text(double ratio);

}  // namespace tessera::bench
