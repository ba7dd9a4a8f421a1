#include "tessera/comm/launch_process.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <sched.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include "tessera/base/check.h"
#include "tessera/comm/c10d/engines.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {

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

namespace {

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
    rendezvous.address_origin = decision.address_origin;
    rendezvous.port_origin = decision.port_origin;
  }
  return make_gloo_world(decision.rank, decision.size, rendezvous, options);
}

/// Keeps Open MPI, which would listen on all interfaces, to shared memory when all ranks are on one
/// host, unless the user has chosen.
void keep_mpi_local(const LaunchDecision& decision) {
  if (decision.size != 1 && decision.local_size != decision.size) return;
  ::setenv("OMPI_MCA_btl", "self,vader", /*overwrite=*/0);
}

}  // namespace

std::shared_ptr<WorldState> make_process_world(const LaunchDecision& decision,
                                               const WorldOptions& options) {
  share_cores(decision);
  if (decision.engine == EngineKind::gloo) return make_gloo_world(decision, options);
  keep_mpi_local(decision);
  auto world = make_mpi_world(options);
  TESSERA_CHECK(world->rank() == decision.rank && world->size() == decision.size,
                "launch: ", decision.source, " started rank ", decision.rank, " of ", decision.size,
                ", but MPI says rank ", world->rank(), " of ", world->size(),
                "; start the program with the mpirun of the MPI that Tessera is built with");
  return world;
}

}  // namespace tessera::detail
