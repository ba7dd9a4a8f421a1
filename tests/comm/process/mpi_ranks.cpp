// A rank of an MPI job, for mpi_test: `mpirun -n 4 mpi_ranks CASE [NUMBER]`. Prints what it throws, as
// `launch` would, and ends with 1 then, or when an expectation failed.

#include <algorithm>
#include <csignal>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include "comm/process/deadlock_cases.h"
#include "comm/process/ending_cases.h"
#include "comm/process/fault_work.h"
#include "comm/process/sample_cases.h"
#include "comm/process/transport_cases.h"
#include "comm/process/untouched_cases.h"
#include "tessera/base/concat.h"
#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {
namespace {

using std::chrono::milliseconds;

void check_everything(World& world) {
  const Group group = world.group();
  EXPECT_STREQ(group.engine(), "mpi");
  check_moves(group);
  check_reductions(group);
  check_messages(group);
  check_async(group);
  check_records(group);
}

void check_groups(World& world) {
  if (world.size() < 4) return;
  if (world.rank() != 1 && world.rank() < 4) {
    const Group three = world.group({3, 0, 2}, "three");
    check_records(three);
    check_messages(three);
  }
  if (world.rank() % 2 == 1) check_async(world.group({3, 1}));
  check_async(world.group({world.rank()}));
  check_records(world.group());
}

/// Expects all elements to have this value. Sums would need eight times the memory.
void expect_all(const at::Tensor& data, int value) {
  EXPECT_EQ(data.min().item<int>(), value);
  EXPECT_EQ(data.max().item<int>(), value);
}

/// More elements than an int can count; for two ranks.
void check_beyond_ints(World& world) {
  constexpr std::int64_t kInts = std::int64_t{1} << 31;
  {
    at::Tensor data = at::full({kInts + 5}, world.rank() == 0 ? 1 : 0, at::kChar);
    if (world.rank() == 0) data.narrow(0, kInts - 1, 6).fill_(7);
    data = broadcast(data, 0, world.group());
    expect_all(data.narrow(0, 0, kInts - 1), 1);
    expect_all(data.narrow(0, kInts - 1, 6), 7);
  }
  constexpr std::int64_t kHalf = kInts / 2 + 3;
  const at::Tensor all =
      all_gather(at::full({kHalf}, world.rank() + 1, at::kChar), 0, world.group());
  ASSERT_EQ(all.numel(), 2 * kHalf);
  expect_all(all.narrow(0, 0, kHalf), 1);
  expect_all(all.narrow(0, kHalf, kHalf), 2);
}

void report_verdict(World& world, const char* what) {
  const char* verdict = ::testing::Test::HasFailure() ? "missed" : "found";
  std::cout << concat(what, ' ', verdict, " on rank ", world.rank(), '\n') << std::flush;
}

/// Groups stay failed, and MPI ends the job at the end of a world that had one; so this prints its own
/// verdict before that.
void find_mismatches(World& world, std::size_t first) {
  check_mismatches(world.rank(), all_groups_of(world.size(), 4), first);
  // The first rank to end ends all others.
  barrier(world.group());
  report_verdict(world, "mismatches");
}

/// Works until told to end, in one of several ways, on rank 1.
void end_early(World& world, const std::function<void()>& end) {
  report_ready(world);
  for (std::int64_t round = 0; round < 5; ++round) work_once(world.group(), round);
  if (world.rank() == 1) return end();
  for (std::int64_t round = 5;; ++round) work_once(world.group(), round);
}

/// What is left of the world when it has ended, and what to expect of it then.
at::Tensor kept;
std::function<void()> expect_afterwards;

/// Keeps an asynchronous result beyond the end of the world, and of MPI.
void keep_result(World& world) {
  kept =
      all_reduce(at::full({1000}, 1, at::kFloat), ReduceOp::sum, world.group(), {.async_op = true});
  expect_afterwards = [size = world.size()] {
    EXPECT_TRUE(is_pending(kept));
    EXPECT_TRUE(wait(kept).eq(static_cast<double>(size)).all().item<bool>());
  };
}

/// MPI itself finds something wrong.
void expect_comm_error_of_mpi(World& world) {
  (void)detail::connect(world.group()).broadcast(at::full({4}, 1, at::kFloat), 99);
}

using Case = std::function<void(World&)>;

std::map<std::string, Case> all_cases(std::uint64_t number) {
  return {
      {"everything", check_everything},
      {"moves",
       [](World& world) {
         check_moves(world.group());
         check_messages(world.group());
         const at::Tensor data = at::full({10}, world.rank(), at::kInt);
         const std::vector<std::int64_t> counts = {4, 1, 5};
         const at::Tensor part =
             at::full({counts[static_cast<std::size_t>(world.rank())]}, 0, at::kInt);
         detail::Transport& transport = detail::connect(world.group());
         transport.reduce_scatter(part, data, counts, ReduceOp::sum)->wait();
         transport.all_reduce(data, ReduceOp::sum)->wait();
         EXPECT_TRUE(part.eq(3).all().item<bool>());
         EXPECT_TRUE(data.eq(3).all().item<bool>());
       }},
      {"beyond_ints", check_beyond_ints},
      {"groups", check_groups},
      {"mismatches", [=](World& world) { find_mismatches(world, number); }},
      {"deadlocks",
       [=](World& world) {
         check_deadlocks(all_group_pairs_of(world.size()), number);
         report_verdict(world, "deadlocks");
       }},
      {"samples", check_all_samples},
      {"work", work_forever},
      {"ends",
       [=](World& world) {
         report_ready(world);
         all_ending_cases().at(number).run(world);
       }},
      {"exits", [](World& world) { end_early(world, [] { std::exit(3); }); }},
      {"kills_itself", [](World& world) { end_early(world, [] { std::raise(SIGKILL); }); }},
      {"never_comes",
       [](World& world) {
         work_once(world.group(), 0);
         if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(20));
         work_forever(world);
       }},
      {"never_connects",
       [](World& world) {
         if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(20));
         work_once(world.group({2, 1, 0}, "turned"), 0);
       }},
      {"untouched",
       [](World& world) {
         check_outputs_untouched(world);
         barrier(world.group());
         report_verdict(world, "untouched");
       }},
      {"two_threads", check_two_threads},
      {"slow_on_groups", [=](World& world) { check_slow_ranks(world, number); }},
      {"slow",
       [](World& world) {
         for (std::int64_t round = 0; round < world.size(); ++round) {
           // Long enough for the others to become suspicious, and far from the limit.
           if (world.rank() == round) std::this_thread::sleep_for(milliseconds(800));
           work_once(world.group(), round);
         }
       }},
      {"forgets",
       [](World& world) {
         const at::Tensor data = at::full({100}, 1, at::kFloat);
         (void)detail::connect(world.group()).all_reduce(data, ReduceOp::sum);
       }},
      {"keeps", keep_result},
      {"bad_root", expect_comm_error_of_mpi},
      {"halves", expect_halves_that_differ_are_found},
      {"wrong_argument", expect_wrong_argument_is_told},
      {"wrong_group",
       [](World& world) {
         if (world.rank() < 2) work_once(world.group({0, 1}, "pair"), 0);
         work_once(world.rank() == 1 ? world.group({0, 1}) : world.group(), 1);
       }},
  };
}

/// Short where ranks are to be missed.
std::chrono::seconds timeout_of(const std::string& name) {
  const std::set<std::string> patient = {"beyond_ints", "deadlocks", "ends",
                                         "everything",  "groups",    "mismatches",
                                         "moves",       "samples",   "untouched"};
  if (name == "slow_on_groups") return kSlowLimit;
  return std::chrono::seconds(patient.contains(name) ? 20 : 2);
}

int run(const Case& body, std::chrono::seconds timeout) {
  at::set_num_threads(1);
  WorldOptions options;
  options.timeout = timeout;
  try {
    const auto state = detail::make_mpi_world(options);
    const detail::CurrentWorld current(state);
    World world(state);
    try {
      body(world);
    } catch (const std::exception& error) {
      std::cout << concat("rank ", world.rank(), " threw: ", error.what(), '\n') << std::flush;
      state->fail(error.what());
      throw;
    }
  } catch (const std::exception&) {
    return 1;
  }
  if (expect_afterwards) expect_afterwards();
  return ::testing::Test::HasFailure() ? 1 : 0;
}

}  // namespace
}  // namespace tessera::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const auto cases = tessera::test::all_cases(argc > 2 ? std::stoull(argv[2]) : 0);
  const auto found = cases.find(argc > 1 ? argv[1] : "");
  if (found == cases.end()) return 2;
  return tessera::test::run(found->second, tessera::test::timeout_of(found->first));
}
