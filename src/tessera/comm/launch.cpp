#include <exception>
#include <filesystem>
#include <string>

#include "tessera/base/concat.h"
#include "tessera/base/error.h"
#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/failure_report.h"
#include "tessera/comm/launch_environment.h"
#include "tessera/comm/launch_process.h"
#include "tessera/comm/log.h"
#include "tessera/comm/world.h"
#include "tessera/comm/world_state.h"

namespace tessera {
namespace detail {
namespace {

constexpr int kFailure = 1;
constexpr int kBadUsage = 2;

std::string program_name(int argc, char** argv) {
  if (argc < 1 || argv[0] == nullptr) return "launch";
  return std::filesystem::path(argv[0]).filename().string();
}

/// Runs `fn` as the rank that this process is. A failure is reported while the world still stands,
/// as some engines end the whole job with it.
int run_process(const LaunchDecision& decision, const std::function<void(World&)>& fn,
                const WorldOptions& options, const std::string& program) {
  const auto report = [&] {
    const auto error = std::current_exception();
    std::string text = failure_text(error);
    report_failure(program, concat("rank ", decision.rank, ": ", text), error);
    return text;
  };
  std::shared_ptr<WorldState> state;
  try {
    state = make_process_world(decision, options);
  } catch (const InvalidArgument&) {
    report();
    return kBadUsage;
  } catch (...) {
    report();
    return kFailure;
  }
  try {
    const CurrentWorld current(state);
    World world(state);
    fn(world);
    return 0;
  } catch (...) {
    state->fail(report());
    return kFailure;
  }
}

int run_threads(const LaunchDecision& decision, const std::function<void(World&)>& fn,
                const WorldOptions& options, const std::string& program) {
  try {
    run_ranks(decision.size, fn, options);
    return 0;
  } catch (...) {
    const auto error = std::current_exception();
    report_failure(program, failure_text(error), error);
    return kFailure;
  }
}

}  // namespace
}  // namespace detail

int launch(int& argc, char** argv, const std::function<void(World&)>& fn, WorldOptions options) {
  using namespace detail;
  const std::string program = program_name(argc, argv);
  LaunchDecision decision;
  try {
    const Variables variables = environment_variables();
    const auto level = variables.find("TESSERA_LOG");
    if (level != variables.end() && !level->second.empty()) (void)parse_log_level(level->second);
    decision = decide_launch(variables, take_launch_flags(argc, argv), has_mpi());
  } catch (const InvalidArgument& error) {
    report_failure(program, error.what(), std::current_exception());
    return kBadUsage;
  }
  if (decision.timeout) options.timeout = *decision.timeout;
  const bool is_threads = decision.engine == EngineKind::threads;
  if (!is_threads) set_log_rank(decision.rank);
  log_message(LogLevel::info, "launch: ", decision.source, "; engine ",
              engine_name(decision.engine), ", ", decision.size, " rank(s)",
              is_threads ? " as threads" : "");
  if (is_threads) return run_threads(decision, fn, options, program);
  return run_process(decision, fn, options, program);
}

}  // namespace tessera
