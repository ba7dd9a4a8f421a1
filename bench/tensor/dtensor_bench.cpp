// What operations on DTensors cost beside plain ones, and how long a large move takes. Prints one JSON
// object per line, for `compare.py`, which runs the same in PyTorch and JAX.
//
//   dtensor_bench ops                  one rank: what DTensors add to small operations
//   dtensor_bench count                the same operations, for callgrind to count instructions
//   dtensor_bench move [--ranks N]     64 MB from Shard(0) to Shard(1), on any engine
//   dtensor_bench list [--ranks N]     100 small parameters one by one and all at once, on any engine

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "tessera/comm/collectives.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/world.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/local_map.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 15;

/// What has been computed so far, by the calling thread or by all, in milliseconds. On an idle machine
/// one thread's is the time that passes; on a busy one it leaves out that of other programs.
double work_ms(clockid_t whose) {
  timespec time{};
  clock_gettime(whose, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

double microseconds(const std::function<void()>& call, int repeats) {
  const double begin = work_ms(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < repeats; ++i) call();
  return (work_ms(CLOCK_THREAD_CPUTIME_ID) - begin) * 1e3 / repeats;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Times both in turns, so that other work on the machine falls on both alike.
void compare(const char* name, int repeats, const std::function<void()>& plain,
             const std::function<void()>& distributed) {
  std::vector<double> plain_times;
  std::vector<double> distributed_times;
  for (int round = 0; round < kRounds + 2; ++round) {
    const double plain_time = microseconds(plain, repeats);
    const double distributed_time = microseconds(distributed, repeats);
    if (round < 2) continue;
    plain_times.push_back(plain_time);
    distributed_times.push_back(distributed_time);
  }
  std::printf("{\"name\": \"%s\", \"plain_us\": %.4f, \"dtensor_us\": %.4f}\n", name,
              median(plain_times), median(distributed_times));
  std::fflush(stdout);
}

void compare_small_ops(const DeviceMesh& mesh) {
  const torch::NoGradGuard no_history;
  const auto x = torch::randn({8, 8});
  const auto y = torch::randn({8, 8});
  const auto dx = distribute_tensor(x, mesh, {Shard(0)});
  const auto dy = distribute_tensor(y, mesh, {Shard(0)});
  const auto whole = distribute_tensor(y, mesh, {Replicate()});
  compare(
      "add", 2000, [&] { (void)(x + y); }, [&] { (void)(dx + dy); });
  compare(
      "mm", 2000, [&] { (void)torch::mm(x, y); }, [&] { (void)torch::mm(dx, whole); });
  compare(
      "redistribute nothing", 2000, [] {}, [&] { (void)redistribute(dx, {Shard(0)}); });
  const auto sum = [](const at::Tensor& a, const at::Tensor& b) { return a + b; };
  const auto mapped = local_map(
      sum,
      {.out_placements = {{Shard(0)}}, .in_placements = {{Shard(0)}, {Shard(0)}}, .mesh = mesh});
  compare(
      "local_map of add", 2000, [&] { (void)sum(x, y); }, [&] { (void)mapped(dx, dy); });
}

void compare_optimizer(const DeviceMesh& mesh) {
  std::vector<at::Tensor> plain;
  std::vector<at::Tensor> distributed;
  for (int i = 0; i < 100; ++i) {
    const auto value = torch::randn({8, 8});
    const auto gradient = torch::randn({8, 8});
    plain.push_back(value.clone().requires_grad_(true));
    plain.back().mutable_grad() = gradient;
    distributed.push_back(distribute_tensor(value, mesh, {Shard(0)}).requires_grad_(true));
    distributed.back().mutable_grad() = distribute_tensor(gradient, mesh, {Shard(0)});
  }
  const auto options = torch::optim::AdamWOptions(1e-3);
  torch::optim::AdamW plain_optimizer(plain, options);
  torch::optim::AdamW distributed_optimizer(distributed, options);
  compare(
      "AdamW step of 100 parameters", 20, [&] { plain_optimizer.step(); },
      [&] { distributed_optimizer.step(); });
}

/// What callgrind counts, under a name that it can be told: see `compare.py`.
extern "C" [[gnu::noipa]] void tessera_counted_calls(const std::function<void()>& call,
                                                     int repeats) {
  for (int i = 0; i < repeats; ++i) call();
}

void count_small_ops(const DeviceMesh& mesh) {
  constexpr int kRepeats = 200;
  const torch::NoGradGuard no_history;
  const auto x = torch::randn({8, 8});
  const auto y = torch::randn({8, 8});
  const auto dx = distribute_tensor(x, mesh, {Shard(0)});
  const auto dy = distribute_tensor(y, mesh, {Shard(0)});
  const auto whole = distribute_tensor(y, mesh, {Replicate()});
  const auto sum = [](const at::Tensor& a, const at::Tensor& b) { return a + b; };
  const auto mapped = local_map(sum, {.out_placements = {{Shard(0)}}});
  const auto count = [](const char* name, const char* kind, const std::function<void()>& call) {
    for (int i = 0; i < 10; ++i) call();
    tessera_counted_calls(call, kRepeats);
    std::printf("{\"name\": \"%s\", \"kind\": \"%s\", \"repeats\": %d}\n", name, kind, kRepeats);
  };
  count("add", "plain", [&] { (void)(x + y); });
  count("add", "dtensor", [&] { (void)(dx + dy); });
  count("mm", "plain", [&] { (void)torch::mm(x, y); });
  count("mm", "dtensor", [&] { (void)torch::mm(dx, whole); });
  count("local_map of add", "plain", [&] { (void)sum(x, y); });
  count("local_map of add", "dtensor", [&] { (void)mapped(dx, dy); });
  count("redistribute nothing", "plain", [] {});
  count("redistribute nothing", "dtensor", [&] { (void)redistribute(dx, {Shard(0)}); });
}

/// How long `move` takes on all ranks together, in milliseconds.
double milliseconds_of(const Group& group, const std::function<void()>& move) {
  barrier(group);
  const auto begin = Clock::now();
  move();
  barrier(group);
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void time_move(const World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  const auto x = distribute_tensor(torch::randn({4096, 4096}), mesh, {Shard(0)});
  std::vector<double> times;
  std::vector<double> work;
  for (int round = 0; round < kRounds + 3; ++round) {
    const double before = work_ms(CLOCK_PROCESS_CPUTIME_ID);
    const double time = milliseconds_of(mesh.group(), [&] { (void)redistribute(x, {Shard(1)}); });
    if (round < 3) continue;
    times.push_back(time);
    work.push_back(work_ms(CLOCK_PROCESS_CPUTIME_ID) - before);
  }
  if (world.rank() == 0) {
    std::printf(
        "{\"name\": \"move\", \"engine\": \"%s\", \"ranks\": %d, \"ms\": %.3f, "
        "\"least_ms\": %.3f, \"cpu_ms\": %.3f}\n",
        world.engine(), static_cast<int>(world.size()), median(times),
        *std::min_element(times.begin(), times.end()), median(work));
  }
}

void time_list(const World& world) {
  const auto mesh = init_device_mesh("cpu", {world.size()});
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < 100; ++i) {
    parameters.push_back(distribute_tensor(torch::randn({64, 64}), mesh, {Shard(0)}));
  }
  std::vector<double> one_by_one;
  std::vector<double> all_at_once;
  for (int round = 0; round < kRounds + 3; ++round) {
    const double separate = milliseconds_of(mesh.group(), [&] {
      for (const auto& parameter : parameters) (void)redistribute(parameter, {Replicate()});
    });
    const double together =
        milliseconds_of(mesh.group(), [&] { (void)redistribute_all(parameters, {{Replicate()}}); });
    if (round < 3) continue;
    one_by_one.push_back(separate);
    all_at_once.push_back(together);
  }
  if (world.rank() == 0) {
    std::printf(
        "{\"name\": \"list\", \"engine\": \"%s\", \"one_by_one_ms\": %.3f, \"all_ms\": %.3f}\n",
        world.engine(), median(one_by_one), median(all_at_once));
  }
}

int run(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "ops";
  const std::vector<std::string> allowed = {"ops", "count", "move", "list"};
  if (std::find(allowed.begin(), allowed.end(), what) == allowed.end()) {
    std::fprintf(stderr, "dtensor_bench: \"%s\" given; allowed are ops, count, move and list\n",
                 what.c_str());
    return 2;
  }
  at::set_num_threads(1);
  return launch(argc, argv, [&](World& world) {
    if (what == "move") return time_move(world);
    if (what == "list") return time_list(world);
    const auto mesh = init_device_mesh("cpu", {world.size()});
    if (what == "count") return count_small_ops(mesh);
    compare_small_ops(mesh);
    compare_optimizer(mesh);
  });
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::run(argc, argv); }
