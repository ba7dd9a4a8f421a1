#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

#include <sched.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include "tessera/base/check.h"
#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/failure_report.h"
#include "tessera/comm/launch_environment.h"
#include "tessera/comm/log.h"
#include "tessera/comm/world.h"
#include "tessera/comm/world_state.h"

namespace tessera {
namespace detail {
namespace {

constexpr int kFailure = 1;
constexpr int kBadUsage = 2;

Variables environment_variables() {
  Variables variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::string program_name(int argc, char** argv) {
  if (argc < 1 || argv[0] == nullptr) return "launch";
  return std::filesystem::path(argv[0]).filename().string();
}

/// Lets torch use a rank's share of the cores, unless the user or the launcher has seen to that.
void share_cores(const LaunchDecision& decision) {
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  cpu_set_t allowed;
  if (!decision.local_size || std::getenv("OMP_NUM_THREADS") != nullptr) return;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  if (CPU_COUNT(&allowed) < cores) return;  // Bound to some by the launcher.
  at::set_num_threads(static_cast<int>(std::max<std::int64_t>(1, cores / *decision.local_size)));
}

std::shared_ptr<WorldState> make_gloo_world(const LaunchDecision& decision,
                                            const WorldOptions& options) {
  Rendezvous rendezvous;
  rendezvous.address = decision.master_address;
  rendezvous.port = decision.master_port;
  rendezvous.agent_serves_store = decision.agent_serves_store;
  rendezvous.generation = decision.restart_count;
  rendezvous.file = decision.rendezvous_file;
  if (decision.size > 1) {
    rendezvous.rank_name = decision.rank_name;
    rendezvous.size_name = decision.size_name;
    rendezvous.address_name = decision.address_name;
    rendezvous.port_name = decision.port_name;
  }
  return make_gloo_world(decision.rank, decision.size, rendezvous, options);
}

/// Keeps Open MPI, which would listen on all interfaces, to shared memory when all ranks are on one
/// host, unless the user has chosen.
void keep_mpi_local(const LaunchDecision& decision) {
  if (decision.size != 1 && decision.local_size != decision.size) return;
  ::setenv("OMPI_MCA_btl", "self,vader", /*overwrite=*/0);
}

std::shared_ptr<WorldState> make_process_world(const LaunchDecision& decision,
                                               const WorldOptions& options) {
  if (decision.engine == EngineKind::gloo) return make_gloo_world(decision, options);
  keep_mpi_local(decision);
  auto world = make_mpi_world(options);
  TESSERA_CHECK(world->rank() == decision.rank && world->size() == decision.size,
                "launch: ", decision.source, " started rank ", decision.rank, " of ", decision.size,
                ", but MPI says rank ", world->rank(), " of ", world->size(),
                "; start the program with the mpirun of the MPI that Tessera is built with");
  return world;
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
  share_cores(decision);
  return run_process(decision, fn, options, program);
}

}  // namespace tessera
