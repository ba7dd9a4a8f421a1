#include <benchmark/benchmark.h>

#include "tessera/plan/plan_cache.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera {
namespace {

struct Pair {
  Layout from;
  Layout to;
};

Pair transposed(std::int64_t side) {
  const MeshShape mesh({side, side}, {"dp", "tp"});
  return {Layout(mesh, {Shard(0), Shard(1)}, {8192, 8192}),
          Layout(mesh, {Shard(1), Shard(0)}, {8192, 8192})};
}

Pair rows_to_columns(std::int64_t ranks) {
  const MeshShape mesh({ranks});
  return {Layout(mesh, {Shard(0)}, {65536, 65536}), Layout(mesh, {Shard(1)}, {65536, 65536})};
}

/// Plans one rank's part from scratch: what each rank does the first time. Bars: 30 us on 2x2 (side
/// 2), 1 ms on 128x128; how it grows with the ranks is what the range shows.
void plan_cold(benchmark::State& state, const Pair& pair) {
  set_plan_cache_capacity(0);
  const std::int64_t rank = pair.from.mesh().num_ranks() / 3;
  for (auto _ : state) {
    const auto plan = plan_redistribute(pair.from, pair.to);
    benchmark::DoNotOptimize(plan.for_rank(rank)->traffic.received_bytes);
  }
  set_plan_cache_capacity(1024);
  state.counters["ranks"] = static_cast<double>(pair.from.mesh().num_ranks());
}

void BM_PlanColdTransposed(benchmark::State& state) {
  plan_cold(state, transposed(state.range(0)));
}
BENCHMARK(BM_PlanColdTransposed)->RangeMultiplier(2)->Range(2, 128)->Unit(benchmark::kMicrosecond);

/// Every rank talks to every other one: the plan itself has as many messages as ranks.
void BM_PlanColdRowsToColumns(benchmark::State& state) {
  plan_cold(state, rows_to_columns(state.range(0)));
}
BENCHMARK(BM_PlanColdRowsToColumns)
    ->RangeMultiplier(4)
    ->Range(4, 16384)
    ->Unit(benchmark::kMicrosecond);

void BM_PlanColdPartialToShard(benchmark::State& state) {
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  plan_cold(state, {Layout(mesh, {Partial(), Replicate()}, {8192, 8192}),
                    Layout(mesh, {Shard(0), Shard(1)}, {8192, 8192})});
}
BENCHMARK(BM_PlanColdPartialToShard)->Unit(benchmark::kMicrosecond);

/// Asks again for a plan that is there. Bar: 0.3 us.
void BM_PlanCacheHit(benchmark::State& state) {
  const Pair pair = transposed(2);
  for (auto _ : state) benchmark::DoNotOptimize(plan_redistribute(pair.from, pair.to));
}
BENCHMARK(BM_PlanCacheHit);

/// The same, down to one rank's own part.
void BM_PlanCacheHitForRank(benchmark::State& state) {
  const Pair pair = transposed(2);
  for (auto _ : state) {
    benchmark::DoNotOptimize(plan_redistribute(pair.from, pair.to).for_rank(1));
  }
}
BENCHMARK(BM_PlanCacheHitForRank);

void BM_LayoutIntern(benchmark::State& state) {
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  const Layout alive(mesh, {Shard(0), Shard(1)}, {8192, 8192});
  for (auto _ : state) {
    benchmark::DoNotOptimize(Layout(mesh, {Shard(0), Shard(1)}, {8192, 8192}));
  }
}
BENCHMARK(BM_LayoutIntern);

}  // namespace
}  // namespace tessera
