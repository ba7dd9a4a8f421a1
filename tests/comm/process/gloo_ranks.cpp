#include "comm/process/gloo_ranks.h"

#include <cstdlib>
#include <iostream>
#include <regex>
#include <string_view>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "tessera/base/concat.h"
#include "tessera/comm/world_state.h"

namespace tessera::test {

WorldOptions short_options() {
  WorldOptions options;
  options.timeout = std::chrono::seconds(2);
  return options;
}

WorldOptions patient_options() {
  WorldOptions options;
  options.timeout = std::chrono::seconds(20);
  return options;
}

detail::Rendezvous at_port(std::uint16_t port) {
  detail::Rendezvous rendezvous;
  rendezvous.address = "127.0.0.1";
  rendezvous.port = port;
  return rendezvous;
}

int run_gloo_rank(std::int64_t rank, std::int64_t size, const detail::Rendezvous& rendezvous,
                  const WorldOptions& options, const RankFunction& fn) {
  at::set_num_threads(1);
  try {
    const auto state = detail::make_gloo_world(rank, size, rendezvous, options);
    const detail::CurrentWorld current(state);
    World world(state);
    try {
      fn(world);
    } catch (const std::exception& error) {
      state->fail(error.what());
      throw;
    }
  } catch (const std::exception& error) {
    std::cout << "threw: " << error.what() << std::endl;
    return 1;
  }
  return ::testing::Test::HasFailure() ? 1 : 0;
}

GlooJob::GlooJob(std::int64_t size, const RankFunction& fn, const WorldOptions& options, Exit exit)
    : processes_(size, [=, this](std::int64_t rank) {
        detail::Rendezvous rendezvous;
        rendezvous.file = folder_.path() + "/store";
        const int code = run_gloo_rank(rank, size, rendezvous, options, fn);
        if (exit == Exit::at_once) end_at_once(code);
        return code;
      }) {}

GlooJob::GlooJob(std::int64_t size, const RankFunction& fn, const WorldOptions& options,
                 const detail::Rendezvous& rendezvous)
    : processes_(size, [=](std::int64_t rank) {
        return run_gloo_rank(rank, size, rendezvous, options, fn);
      }) {}

void GlooJob::expect_success() {
  const auto results = processes_.finish(std::chrono::seconds(120));
  for (const auto& result : results) {
    EXPECT_EQ(result.status, 0) << outputs_of(results);
    EXPECT_FALSE(result.overdue);
  }
}

void run_gloo(std::int64_t size, const RankFunction& fn, const WorldOptions& options) {
  GlooJob(size, fn, options).expect_success();
}

std::chrono::milliseconds noticed_after(const ProcessResult& result) {
  std::smatch found;
  const bool says = std::regex_search(result.output, found, std::regex("after ([0-9]+) ms"));
  return says ? std::chrono::milliseconds(std::stoll(found[1])) : std::chrono::milliseconds::max();
}

std::string outputs_of(const std::vector<ProcessResult>& results) {
  std::string text;
  for (std::size_t i = 0; i < results.size(); ++i) {
    text += concat("process ", i, " ended after ", results[i].ended.count(), " ms with ",
                   results[i].status, ":\n", results[i].output, '\n');
  }
  return text;
}

}  // namespace tessera::test
