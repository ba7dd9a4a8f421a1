#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "alternation.h"
#include "redistribute_cases.h"
#include "tessera/base/concat.h"
#include "tessera/comm/world.h"

#ifndef TESSERA_RUN
#define TESSERA_RUN ""
#endif

// Redistributions of plain tensors on every engine, each beside what it cannot or should not beat:
// a memcpy, or the engine's own collective. All figures of a row come from one run, in alternation,
// since only their ratios say something on a shared machine. Without arguments it measures threads,
// then starts itself again as processes of gloo and mpi. Not written with Google Benchmark's loops,
// which know no ranks, but takes its --benchmark_filter. TESSERA_BENCH_ROUNDS=1 is a short run.

namespace tessera::bench {
namespace {

constexpr std::int64_t kRanks = 4;

void measure_all(const World& world, const std::string& only) {
  measure_large_moves(world, only);
  measure_latency(world, only);
  if (std::string_view(world.engine()) != "threads") measure_check(world, only);
}

/// Without a filter everything is wanted.
bool wants_check(const std::string& only) {
  return only.empty() || only.find("check") != std::string::npos;
}

/// With threads the comparison is part of the operation, so worlds with and without take turns.
void measure_check_of_threads(const std::string& only) {
  if (!wants_check(only)) return;
  std::vector<double> with;
  std::vector<double> without;
  for (int i = 0; i < 5; ++i) {
    for (const bool check : {true, false}) {
      run_ranks(kRanks,
                [&](World& world) {
                  const double seconds = small_redistribution_seconds(world);
                  if (world.rank() == 0) (check ? with : without).push_back(seconds);
                },
                {.check = check});
    }
  }
  std::sort(with.begin(), with.end());
  std::sort(without.begin(), without.end());
  std::printf("\nThe fingerprint's cost, 8x8 S(0) -> S(1), threads\n");
  print_table({{"", "time"},
               {"with check", seconds_text(with[with.size() / 2])},
               {"without", seconds_text(without[without.size() / 2])}});
}

bool has_program(const std::string& name) {
  return std::system(concat("command -v ", name, " >/dev/null 2>&1").c_str()) == 0;
}

/// Runs this program as processes; says so when that does not work.
void measure_processes(const char* engine, const std::string& launcher, const std::string& program,
                       const std::string& only) {
  std::fflush(stdout);
  const std::string command = concat(launcher, ' ', kRanks, " '", program, "' --engine ", engine,
                                     " --benchmark_filter='", only, "'");
  if (std::system(command.c_str()) != 0) std::printf("\n%s: not available here\n", engine);
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  using namespace tessera::bench;  // NOLINT(google-build-using-namespace)
  const std::vector<std::string_view> arguments(argv, argv + argc);
  const bool is_rank = std::find(arguments.begin(), arguments.end(), "--engine") != arguments.end();
  benchmark::Initialize(&argc, argv);
  std::string only = benchmark::GetBenchmarkFilter();
  if (only == "all" || only == ".") only.clear();
  if (is_rank) {
    return tessera::launch(argc, argv, [&](tessera::World& world) { measure_all(world, only); });
  }
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  tessera::run_ranks(kRanks, [&](tessera::World& world) { measure_all(world, only); });
  measure_check_of_threads(only);
  if (std::string_view(TESSERA_RUN).empty()) {
    std::printf("\ngloo: not measured, tessera_run was not built\n");
  } else {
    measure_processes("gloo", TESSERA_RUN " --nproc-per-node", argv[0], only);
  }
  if (has_program("mpirun")) {
    measure_processes("mpi", "mpirun --oversubscribe --allow-run-as-root -n", argv[0], only);
  } else {
    std::printf("\nmpi: not available here, there is no mpirun\n");
  }
  return 0;
}
