#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "comm/process/run_processes.h"
#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/world.h"

namespace tessera::test {

using RankFunction = std::function<void(World&)>;

/// The time limit of worlds in tests of faults: 2 s.
[[nodiscard]] WorldOptions short_options();
/// With that limit errors must be thrown so soon: a second later.
inline constexpr std::chrono::milliseconds kThrownInTime{3000};
/// That of worlds in which nothing should take long: 20 s.
[[nodiscard]] WorldOptions patient_options();

/// Where ranks meet at a port of loopback, which rank 0 serves.
[[nodiscard]] detail::Rendezvous at_port(std::uint16_t port);

/// Runs `fn` as a rank of a gloo world, as `launch` would: prints what it throws, and returns 1
/// then, or when an expectation of GoogleTest failed in it.
int run_gloo_rank(std::int64_t rank, std::int64_t size, const detail::Rendezvous& rendezvous,
                  const WorldOptions& options, const RankFunction& fn);

/// How processes end after their world: as a program's main does, or at once, see `end_at_once`.
enum class Exit { as_usual, at_once };

/// Processes of a gloo world that meet in a file of their own, or where they are told, and run `fn`.
class GlooJob {
 public:
  GlooJob(std::int64_t size, const RankFunction& fn,
          const WorldOptions& options = patient_options(), Exit exit = Exit::as_usual);
  GlooJob(std::int64_t size, const RankFunction& fn, const WorldOptions& options,
          const detail::Rendezvous& rendezvous);

  [[nodiscard]] Processes& processes() { return processes_; }
  /// Expects all of them to return in time.
  void expect_success();

 private:
  TemporaryFolder folder_;
  Processes processes_;
};

/// Runs `fn` on `size` processes, and expects all of them to return in time.
void run_gloo(std::int64_t size, const RankFunction& fn,
              const WorldOptions& options = patient_options());

/// How long a rank had waited when it threw, as it says; more than any limit when it does not say so.
[[nodiscard]] std::chrono::milliseconds noticed_after(const ProcessResult& result);

/// What processes printed, for messages of tests.
[[nodiscard]] std::string outputs_of(const std::vector<ProcessResult>& results);

}  // namespace tessera::test
