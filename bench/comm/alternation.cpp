#include "alternation.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "tessera/comm/world_state.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kRoundsToWarmUp = 3;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The largest of all ranks' values, one by one.
std::vector<double> largest(const World& world, const std::vector<double>& own) {
  const at::Tensor data = at::empty({static_cast<std::int64_t>(own.size())}, at::kDouble);
  std::copy(own.begin(), own.end(), data.data_ptr<double>());
  detail::connect(world.group()).all_reduce(data, ReduceOp::max)->wait();
  return {data.data_ptr<double>(), data.data_ptr<double>() + own.size()};
}

std::string formatted(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::int64_t rounds_to_measure() {
  const char* text = std::getenv("TESSERA_BENCH_ROUNDS");
  return text == nullptr ? 15 : std::max(1, std::atoi(text));
}

std::vector<double> measure(const World& world, const std::vector<Measured>& all,
                            std::int64_t rounds) {
  std::vector<std::vector<double>> seconds(all.size());
  detail::Transport& transport = detail::connect(world.group());
  const auto now = [] {
    return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  };
  for (std::int64_t round = -kRoundsToWarmUp; round < rounds; ++round) {
    // When each began, negated, then when each ended: the largest are the first and the last.
    std::vector<double> own;
    for (const auto& each : all) {
      transport.barrier();
      own.push_back(-now());
      each.run();
      own.push_back(now());
    }
    const auto largest_of = largest(world, own);
    if (round < 0) continue;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double elapsed = largest_of[2 * i] + largest_of[2 * i + 1];
      seconds[i].push_back(elapsed / static_cast<double>(all[i].repeats));
    }
  }
  std::vector<double> medians;
  for (auto& each : seconds) medians.push_back(median(std::move(each)));
  return medians;
}

double measure_processor(const World& world, const Measured& each, std::int64_t rounds) {
  const auto now = [] {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  std::vector<double> seconds;
  for (std::int64_t round = -kRoundsToWarmUp; round < rounds; ++round) {
    const double begin = now();
    each.run();
    const double own = (now() - begin) / static_cast<double>(each.repeats);
    if (round >= 0) seconds.push_back(own);
  }
  return largest(world, {median(std::move(seconds))})[0];
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const int width = static_cast<int>(widths[i]);
      std::printf(i == 0 ? "%-*s" : "  %*s", width, row[i].c_str());
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

std::string seconds_text(double seconds) {
  if (seconds < 1e-6) return formatted("%.0f ns", seconds * 1e9);
  if (seconds < 1e-3) return formatted("%.1f us", seconds * 1e6);
  return formatted("%.2f ms", seconds * 1e3);
}

std::string ratio_text(double ratio) { return formatted("%.2f", ratio); }

}  // namespace tessera::bench
