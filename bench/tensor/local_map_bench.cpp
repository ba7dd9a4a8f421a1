#include <algorithm>
#include <ctime>
#include <vector>

#include <benchmark/benchmark.h>

#include <ATen/ATen.h>

#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

// What local_map adds to a small `x + y` whose placements fit. The bar is 3 us over the plain
// function on local tensors. Both are timed in turns, and the median of the differences counts: on a
// shared machine only that says something. Nothing is sent, so one of four ranks is timed alone.

namespace tessera::bench {
namespace {

constexpr int kCallsPerSample = 200;
constexpr std::int64_t kRanks = 4;

template <typename Call>
double microseconds_of(const Call& call) {
  // What this thread computes, which other programs do not add to.
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
  };
  const double begin = now();
  for (int i = 0; i < kCallsPerSample; ++i) benchmark::DoNotOptimize(call());
  return (now() - begin) / kCallsPerSample;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

at::Tensor sum_of(const at::Tensor& x, const at::Tensor& y) { return x + y; }

/// Times `sum_of` and the mapped `sum_of` in turns, for inputs placed as `placements`.
void measure(benchmark::State& state, const LocalMapOptions& options, bool requires_grad) {
  const auto mesh = init_device_mesh("cpu", {kRanks});
  const at::Tensor local = at::ones({16, 16});
  const Placements& placements = *options.out_placements[0];
  const std::vector<std::int64_t> shape = {placements[0] == Placement(Shard(0)) ? 16 * kRanks : 16,
                                           16};
  const auto make = [&] {
    return from_local(local.clone(), mesh, placements, {.shape = shape})
        .requires_grad_(requires_grad);
  };
  const at::Tensor x = make();
  const at::Tensor y = make();
  const at::Tensor x_local = local.clone().requires_grad_(requires_grad);
  const at::Tensor y_local = local.clone().requires_grad_(requires_grad);
  const auto mapped = local_map(sum_of, options);
  std::vector<double> plain_times;
  std::vector<double> differences;
  for (auto _ : state) {
    const double plain = microseconds_of([&] { return sum_of(x_local, y_local); });
    const double distributed = microseconds_of([&] { return mapped(x, y); });
    plain_times.push_back(plain);
    differences.push_back(distributed - plain);
  }
  state.counters["plain_us"] = median(plain_times);
  state.counters["added_us"] = median(differences);
}

void BM_AddShards(benchmark::State& state) {
  measure(state, {.out_placements = {{Shard(0)}}}, false);
}
void BM_AddShardsWithInPlacements(benchmark::State& state) {
  measure(state, {.out_placements = {{Shard(0)}}, .in_placements = {{Shard(0)}, {Shard(0)}}},
          false);
}
void BM_AddCopies(benchmark::State& state) {
  measure(state, {.out_placements = {{Replicate()}}}, false);
}
/// With history: two nodes of to_local and one of from_local more in the graph.
void BM_AddShardsWithGradient(benchmark::State& state) {
  measure(state, {.out_placements = {{Shard(0)}}}, true);
}

BENCHMARK(BM_AddShards)->Iterations(200)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_AddShardsWithInPlacements)->Iterations(200)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_AddCopies)->Iterations(200)->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_AddShardsWithGradient)->Iterations(200)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  tessera::run_ranks(tessera::bench::kRanks, [](tessera::World& world) {
    if (world.rank() == 0) benchmark::RunSpecifiedBenchmarks();
  });
  return 0;
}
