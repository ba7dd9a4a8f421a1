#include "redistribute_cases.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <regex>
#include <string_view>
#include <thread>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>

#include "alternation.h"
#include "shared_copy.h"
#include "tessera/base/concat.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/world_state.h"
#include "tessera/plan/redistribute_plan.h"
#include "unchecked_world.h"

namespace tessera::bench {
namespace {

constexpr std::int64_t kSide = 4096;

bool is_wanted(const std::string& name, const std::string& only) {
  return only.empty() || std::regex_search(name, std::regex(only));
}

/// Memory for what `like` has, as a user gets it, or the same every time.
class Output {
 public:
  explicit Output(const at::Tensor& like, bool fresh)
      : used_(at::ones(like.sizes())), fresh_(fresh) {}
  at::Tensor get() const { return fresh_ ? at::empty_like(used_) : used_; }

 private:
  at::Tensor used_;
  bool fresh_;
};

/// One redistribution and what it is compared with.
struct Move {
  std::string name;
  Layout from;
  Layout to;
  /// The engine's own collective that moves the same bytes, into what it is given; none where a memcpy
  /// of them is what it is compared with.
  std::function<void(const at::Tensor& out, const at::Tensor& in)> raw;
  double bar;
};

at::Tensor local_of(const Layout& layout, std::int64_t rank) {
  return at::ones(layout.local_shape(*layout.mesh().position_of(rank)));
}

std::vector<std::int64_t> even_counts(const at::Tensor& data, std::int64_t parts) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(parts), data.numel() / parts);
}

void copy_own(const at::Tensor& out, const at::Tensor& in) {
  std::memcpy(out.data_ptr(), in.data_ptr(), in.nbytes());
}

std::vector<Move> large_moves(const World& world) {
  const std::int64_t ranks = world.size();
  const MeshShape line({ranks});
  const MeshShape square({2, ranks / 2});
  const Shape shape{kSide, kSide};
  detail::Transport& engine = detail::connect(world.group());
  const bool threads = std::string_view(world.engine()) == "threads";
  const auto layout = [&](const MeshShape& mesh, const char* placements) {
    return Layout(mesh, parse_placements(placements), shape);
  };
  const auto all_to_all = [&engine, ranks](const at::Tensor& out, const at::Tensor& in) {
    engine.all_to_all(out, in, even_counts(out, ranks), even_counts(in, ranks))->wait();
  };
  const auto swap = [&engine, rank = world.rank(), ranks](const at::Tensor& out,
                                                          const at::Tensor& in) {
    // The rank on the other side of the diagonal of a square mesh.
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), 0);
    const std::int64_t other = rank % 2 * 2 + rank / 2;
    counts[static_cast<std::size_t>(other)] = in.numel();
    engine.all_to_all(out, in, counts, counts)->wait();
  };
  const auto all_gather = [&engine, ranks](const at::Tensor& out, const at::Tensor& in) {
    engine.all_gather(out, in, even_counts(out, ranks))->wait();
  };
  const auto all_reduce = [&engine](const at::Tensor& out, const at::Tensor& in) {
    copy_own(out, in);
    engine.all_reduce(out, ReduceOp::sum)->wait();
  };
  const auto reduce_scatter = [&engine, ranks](const at::Tensor& out, const at::Tensor& in) {
    engine.reduce_scatter(out, in, even_counts(in, ranks), ReduceOp::sum)->wait();
  };
  return {
      {"S(0) -> S(1)", layout(line, "S0"), layout(line, "S1"),
       threads ? nullptr : std::function<void(const at::Tensor&, const at::Tensor&)>(all_to_all),
       threads ? 1.5 : 2.0},
      {"S(1) -> S(0)", layout(line, "S1"), layout(line, "S0"), all_to_all, threads ? 1.5 : 2.0},
      {"[S(0),S(1)] -> [S(1),S(0)]", layout(square, "S0,S1"), layout(square, "S1,S0"), swap, 1.3},
      {"S(0) -> R", layout(line, "S0"), layout(line, "R"), all_gather, 1.3},
      {"P -> R", layout(line, "P"), layout(line, "R"), all_reduce, 1.3},
      {"P -> S(0)", layout(line, "P"), layout(line, "S0"), reduce_scatter, 1.3},
  };
}

/// What all ranks together must receive, whatever the plan.
double bound_bytes(const Move& move) {
  const auto summary = plan_redistribute(move.from, move.to).summary();
  return static_cast<double>(summary.mean_bound_bytes) * static_cast<double>(summary.ranks.size());
}

std::vector<std::string> measure_move(const World& world, const Move& move) {
  const at::Tensor in = local_of(move.from, world.rank());
  const at::Tensor out = local_of(move.to, world.rank());
  const Output fresh(out, true);
  const Output used(out, false);
  const SharedCopy copy(world, kSide * kSide);
  const auto raw_into = [&](const Output& output) { move.raw(output.get(), in); };
  const auto seconds =
      measure(world, {{"ours", [&] { (void)redistribute_local(in, move.from, move.to, world); }},
                      {"raw, new memory", [&] { move.raw ? raw_into(fresh) : copy.into_new(); }},
                      {"raw, used memory", [&] { move.raw ? raw_into(used) : copy.into_used(); }},
                      {"memcpy", [&] { copy.into_used(); }}});
  const double per_byte = seconds[3] / (static_cast<double>(kSide) * kSide * sizeof(float));
  return {move.name,
          seconds_text(seconds[0]),
          seconds_text(seconds[1]),
          ratio_text(seconds[0] / seconds[1]),
          seconds_text(seconds[2]),
          ratio_text(seconds[0] / seconds[2]),
          ratio_text(move.bar),
          seconds_text(per_byte * bound_bytes(move))};
}

void print_on_first(const World& world, const std::string& title,
                    const std::vector<std::vector<std::string>>& rows) {
  if (world.rank() != 0 || rows.size() < 2) return;
  std::printf("\n%s, %s, %d ranks on %u cores\n", title.c_str(), world.engine(),
              static_cast<int>(world.size()), std::thread::hardware_concurrency());
  print_table(rows);
}

/// Redistributes 8x8 elements there and back.
struct SmallMove {
  explicit SmallMove(const World& its_world)
      : world(its_world),
        rows(MeshShape({world.size()}), {Shard(0)}, {8, 8}),
        columns(MeshShape({world.size()}), {Shard(1)}, {8, 8}),
        local(local_of(rows, world.rank())) {}

  void run(std::int64_t times) const {
    for (std::int64_t i = 0; i < times; ++i) {
      (void)redistribute_local(local, rows, columns, world);
    }
  }

  const World& world;
  Layout rows;
  Layout columns;
  at::Tensor local;
};

}  // namespace

void measure_large_moves(const World& world, const std::string& only) {
  // The bar is for both ratios.
  std::vector<std::vector<std::string>> rows{{"64 MB", "redistribute", "raw, new memory", "ratio",
                                              "raw, used memory", "ratio", "bar", "limit"}};
  for (const auto& move : large_moves(world)) {
    if (is_wanted(move.name, only)) rows.push_back(measure_move(world, move));
  }
  print_on_first(world, "Large moves", rows);
}

void measure_latency(const World& world, const std::string& only) {
  if (!is_wanted("8x8", only)) return;
  const SmallMove small(world);
  const Layout other_names(MeshShape({world.size()}, {"tp"}), {Shard(0)}, {8, 8});
  detail::Transport& engine = detail::connect(world.group());
  const at::Tensor out = at::ones(small.local.sizes());
  const auto counts = even_counts(out, world.size());
  constexpr std::int64_t kMany = 200;
  constexpr std::int64_t kFree = 10'000;
  const auto raw = [&] {
    for (int i = 0; i < kMany; ++i) engine.all_to_all(out, small.local, counts, counts)->wait();
  };
  const auto seconds =
      measure(world, {{"8x8", [&] { small.run(kMany); }, kMany}, {"raw", raw, kMany}});
  const auto free_seconds = [&](const Layout& to) {
    const auto run = [&] {
      for (int i = 0; i < kFree; ++i) (void)redistribute_local(small.local, small.rows, to, world);
    };
    return seconds_text(measure_processor(world, {"nothing", run, kFree}));
  };
  const bool threads = std::string_view(world.engine()) == "threads";
  print_on_first(world, "Latency",
                 {{"", "time", "bar"},
                  {"8x8 S(0) -> S(1)", seconds_text(seconds[0]), threads ? "60 us" : ""},
                  {"raw all_to_all of the same", seconds_text(seconds[1]), ""},
                  {"nothing to move, processor time", free_seconds(small.rows), "500 ns"},
                  {"the same between other names", free_seconds(other_names), "500 ns"}});
}

double small_redistribution_seconds(const World& world) {
  const SmallMove small(world);
  constexpr std::int64_t kMany = 200;
  return measure(world, {{"8x8", [&] { small.run(kMany); }, kMany}})[0];
}

void measure_check(const World& world, const std::string& only) {
  if (!is_wanted("check", only) || !world.options().check) return;
  const SmallMove with(world);
  detail::Transport& engine = detail::connect(world.group());
  const detail::Fingerprint fingerprint{"redistribute",
                                        concat("Float ", with.rows, " to ", with.columns)};
  constexpr std::int64_t kMany = 200;
  const auto check = [&] {
    for (int i = 0; i < kMany; ++i) engine.check(fingerprint);
  };
  in_unchecked_world(world, [&](const World& unchecked) {
    const SmallMove without(unchecked);
    const auto seconds = measure(world, {{"with", [&] { with.run(kMany); }, kMany},
                                         {"without", [&] { without.run(kMany); }, kMany},
                                         {"check", check, kMany}});
    print_on_first(world, "The fingerprint's cost, 8x8 S(0) -> S(1)",
                   {{"", "time"},
                    {"with check", seconds_text(seconds[0])},
                    {"without", seconds_text(seconds[1])},
                    {"the check alone", seconds_text(seconds[2])}});
  });
}

}  // namespace tessera::bench
