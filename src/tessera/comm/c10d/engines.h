#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/comm/world.h"
#include "tessera/comm/world_state.h"

namespace tessera::detail {

/// Where the processes of a gloo world meet: at an address and port, or in a file.
struct Rendezvous {
  /// Rank 0 listens there, on that address only, so on loopback nobody else can connect.
  std::string address;
  std::uint16_t port = 0;
  /// Somebody listens there already (torchrun's agent), so rank 0 connects like everybody.
  bool agent_serves_store = false;
  /// How often the ranks were started anew with the same agent; separates their keys.
  std::int64_t generation = 0;

  /// For one host, instead of the address: a file that does not exist yet, in a folder that only
  /// this user may enter. Who made the folder removes it.
  std::string file;

  /// Where the values came from, for messages.
  std::string rank_name = "RANK";
  std::string size_name = "WORLD_SIZE";
  /// How address and port were found, where `MASTER_ADDR` and `MASTER_PORT` do not say them.
  std::string address_origin;
  std::string port_origin;
};

/// Makes this process a rank of a world of processes that use libtorch's gloo. Lets the process
/// ignore SIGPIPE, unless it handles it.
///
/// Throws `InvalidArgument` when the ranks contradict each other (sizes that differ, a rank taken
/// twice, other options), for an address or port that cannot be used, and where gloo is not built
/// in; `CommError` when somebody does not come within the timeout.
[[nodiscard]] std::shared_ptr<WorldState> make_gloo_world(std::int64_t rank, std::int64_t size,
                                                          const Rendezvous& rendezvous,
                                                          const WorldOptions& options);

/// Makes this process a rank of the world that mpirun or srun started; rank and size are MPI's own.
/// Only once per process: MPI cannot start again.
///
/// The world's end is the end of MPI. After a failure it prints the reason and ends the whole job,
/// other ranks included, for MPI cannot recover.
///
/// Throws `InvalidArgument` where MPI is not built in, or the ranks' options differ.
[[nodiscard]] std::shared_ptr<WorldState> make_mpi_world(const WorldOptions& options);

/// Whether the engines are built in; otherwise the functions above only say what to install.
[[nodiscard]] bool has_gloo();
[[nodiscard]] bool has_mpi();

}  // namespace tessera::detail
