#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/launch_environment.h"

namespace tessera::detail {

enum class Launcher : std::uint8_t { torchrun, open_mpi, pmi, slurm };

/// What one launcher says about this process.
struct LaunchSource {
  Launcher launcher = Launcher::torchrun;
  std::int64_t rank = 0;
  std::int64_t size = 1;
  std::optional<std::int64_t> local_rank;
  std::optional<std::int64_t> local_size;
  /// `torchrun`, `mpirun`, `mpiexec` or `srun`.
  const char* command = "";
  /// `RANK` and `WORLD_SIZE`.
  const char* rank_name = "";
  const char* size_name = "";
  /// `RANK=1, WORLD_SIZE=4`.
  std::string values;
};

/// Returns what the launchers say that started this process itself, by precedence: torchrun, Open
/// MPI, PMI, Slurm. Leaves out those that started only the launcher of this process, and the
/// variables of a Slurm allocation in which srun did not start it.
///
/// Throws `InvalidArgument` when one of them is incomplete or makes no sense.
[[nodiscard]] std::vector<LaunchSource> find_launch_sources(const Variables& variables);

}  // namespace tessera::detail
