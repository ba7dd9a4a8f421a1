#include "comm/process/ending_cases.h"

#include <cstdlib>
#include <new>
#include <set>
#include <stdexcept>

#include "comm/process/fault_work.h"
#include "comm/process/mismatch_calls.h"
#include "comm/process/mismatch_cases.h"
#include "tessera/base/concat.h"

namespace tessera::test {
namespace {

struct WayToEnd {
  std::string name;
  std::function<void()> end;
  std::string words;
  bool is_sudden = false;
};

std::vector<WayToEnd> ways_to_end_a_process() {
  return {
      {"throws", [] { throw std::runtime_error("no more data"); }, "failed: no more data"},
      {"runs out of memory", [] { throw std::bad_alloc(); }, "failed: std::bad_alloc"},
      {"returns", [] {}, "has returned without calling it"},
      {"exits", [] { std::exit(3); }, "is gone: process ", /*is_sudden=*/true},
      {"aborts", [] { std::abort(); }, "is gone: process ", /*is_sudden=*/true},
  };
}

/// The collectives, and `send` and `recv`.
std::vector<std::string> calls_to_wait_in() {
  std::set<std::string> names = {"send", "recv"};
  for (const auto& mismatch : all_mismatches()) {
    if (mismatch.collective != "message") names.insert(mismatch.collective);
  }
  return {names.begin(), names.end()};
}

void wait_in(const std::string& name, const Group& group, std::uint64_t seed) {
  Random random(seed);
  const Call call = usual_call(name, group.size(), random);
  const bool is_send = name == "send";
  if (is_send || name == "recv") return perform(call, {.is_send = is_send, .peer = 1}, group);
  perform(call, group);
}

}  // namespace

std::vector<EndingCase> all_ending_cases() {
  std::vector<EndingCase> cases;
  const auto calls = calls_to_wait_in();
  const auto ways = ways_to_end_a_process();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    for (std::size_t j = 0; j < ways.size(); ++j) {
      const auto run = [name = calls[i], end = ways[j].end, seed = cases.size()](World& world) {
        for (std::int64_t round = 0; round < 2; ++round) work_once(world.group(), round);
        if (world.rank() == 1) return end();
        wait_in(name, world.group(), seed);
      };
      cases.push_back({concat(calls[i], " while rank 1 ", ways[j].name), i, j, run,
                       concat(c10d_name(calls[i]), " on group world, rank "), ways[j].words,
                       ways[j].is_sudden});
    }
  }
  return cases;
}

}  // namespace tessera::test
