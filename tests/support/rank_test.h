#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/comm/world.h"

namespace tessera::test {

/// Ranks that every distributed behaviour is tested on.
inline constexpr std::int64_t kRankCounts[] = {1, 2, 3, 4};

/// A limit that no test comes near unless something hangs.
inline WorldOptions test_options() { return {.timeout = std::chrono::seconds(20)}; }

/// Runs `fn` on 1, 2, 3 and 4 ranks as threads. Failed expectations are reported with the number of
/// ranks; an exception fails the test.
inline void on_every_rank_count(const std::function<void(World&)>& fn) {
  for (const auto ranks : kRankCounts) {
    SCOPED_TRACE("on " + std::to_string(ranks) + " ranks");
    EXPECT_NO_THROW(run_ranks(ranks, fn, test_options()));
  }
}

/// Returns what `run_ranks` throws; fails the test when it does not throw an `Error`.
inline std::string failure_of(std::int64_t ranks, const std::function<void(World&)>& fn,
                              const WorldOptions& options = test_options()) {
  try {
    run_ranks(ranks, fn, options);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "run_ranks did not throw";
  return "";
}

}  // namespace tessera::test
