#include "tessera/comm/launch_sources.h"

#include <limits>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/comm/launch_values.h"

namespace tessera::detail {
namespace {

/// The variables in which a launcher says who a process is.
struct Names {
  Launcher launcher;
  const char* command;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kTorchrun = {Launcher::torchrun, "torchrun",   "RANK",
                             "WORLD_SIZE",       "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi = {Launcher::open_mpi,           "mpirun",
                            "OMPI_COMM_WORLD_RANK",       "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi = {Launcher::pmi, "mpiexec",         "PMI_RANK",
                        "PMI_SIZE",    "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

/// Slurm's names; a step's own number of tasks is the one that counts.
Names slurm_names(const Variables& variables) {
  const bool has_step_size = find_variable(variables, "SLURM_STEP_NUM_TASKS").has_value();
  return {Launcher::slurm, "srun",
          "SLURM_PROCID",  has_step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
          "SLURM_LOCALID", ""};
}

void check_local(const LaunchSource& source, const Names& names) {
  if (source.local_size) {
    TESSERA_CHECK(*source.local_size <= source.size, "launch: ", names.local_size, '=',
                  *source.local_size, " given with ", names.size, '=', source.size,
                  "; no more ranks on one host than there are in all are expected");
  }
  if (source.local_rank) {
    const bool has_local_size = source.local_size.has_value();
    const std::int64_t limit = has_local_size ? *source.local_size : source.size;
    TESSERA_CHECK(*source.local_rank < limit, "launch: ", names.local_rank, '=', *source.local_rank,
                  " given with ", has_local_size ? names.local_size : names.size, '=', limit,
                  "; a local rank from 0 to ", limit - 1, " is expected");
  }
}

/// Reads a launcher's variables; nothing when none of them is set.
std::optional<LaunchSource> read_source(const Variables& variables, const Names& names) {
  const auto rank = find_integer(variables, names.rank, 0, kMostRanks - 1);
  const auto size = find_integer(variables, names.size, 1, kMostRanks);
  if (!rank && !size) return std::nullopt;
  TESSERA_CHECK(rank && size, "launch: ", rank ? names.rank : names.size, '=', rank ? *rank : *size,
                " given, but ", rank ? names.size : names.rank,
                " is missing; set both or none, as ", names.command, " does");
  TESSERA_CHECK(*rank < *size, "launch: ", names.rank, '=', *rank, " given with ", names.size, '=',
                *size, "; a rank from 0 to ", *size - 1, " is expected");
  LaunchSource source;
  source.launcher = names.launcher;
  source.rank = *rank;
  source.size = *size;
  source.local_rank = find_integer(variables, names.local_rank, 0, kMostRanks - 1);
  source.local_size = find_integer(variables, names.local_size, 1, kMostRanks);
  source.command = names.command;
  source.rank_name = names.rank;
  source.size_name = names.size;
  source.values = concat(names.rank, '=', *rank, ", ", names.size, '=', *size);
  check_local(source, names);
  return source;
}

/// True when this process is, or descends from, a task that srun started: a batch script and the
/// shell of an allocation have many of Slurm's variables too, but no step, or a reserved one.
bool is_in_slurm_step(const Variables& variables) {
  constexpr std::int64_t kFirstReserved = 0xfffffff0;
  auto step = find_integer(variables, "SLURM_STEP_ID", 0, std::numeric_limits<std::int64_t>::max());
  if (!step) {
    step = find_integer(variables, "SLURM_STEPID", 0, std::numeric_limits<std::int64_t>::max());
  }
  return step && *step < kFirstReserved && find_variable(variables, "SLURM_PROCID");
}

std::optional<LaunchSource> read_slurm(const Variables& variables) {
  auto source = read_source(variables, slurm_names(variables));
  // A step of one task starts no other ranks: it is how one gets a shell, or this program with
  // threads as ranks, onto a node.
  if (!source || source->size == 1) return std::nullopt;
  auto nodes = find_integer(variables, "SLURM_STEP_NUM_NODES", 1, kMostRanks);
  if (!nodes) nodes = find_integer(variables, "SLURM_NNODES", 1, kMostRanks);
  if (nodes == 1) source->local_size = source->size;
  return source;
}

/// True when srun itself set the PMI variables (`srun --mpi=pmi2`).
bool is_pmi_of_slurm(const Variables& variables) {
  const auto equal = [&](const char* left, const char* right) {
    return find_variable(variables, left) == find_variable(variables, right);
  };
  return equal(kPmi.rank, "SLURM_PROCID") && equal(kPmi.size, slurm_names(variables).size);
}

}  // namespace

std::vector<LaunchSource> find_launch_sources(const Variables& variables) {
  std::vector<LaunchSource> sources;
  const auto add = [&](std::optional<LaunchSource> source) {
    const bool is_found = source.has_value();
    if (is_found) sources.push_back(*std::move(source));
    return is_found;
  };
  const bool has_torchrun = add(read_source(variables, kTorchrun));
  // torchrun is often itself started by srun or mpirun, once per host; they then count its agents.
  if (has_torchrun && find_variable(variables, "TORCHELASTIC_RUN_ID")) return sources;

  const bool has_open_mpi = add(read_source(variables, kOpenMpi));
  const bool in_step = is_in_slurm_step(variables);
  // mpirun and mpiexec reach the hosts of an allocation by srun, and may be started by it: Slurm's
  // variables, and what of PMI comes from it, then speak of the one above.
  auto pmi = read_source(variables, kPmi);
  if (pmi && in_step && is_pmi_of_slurm(variables)) pmi.reset();
  const bool has_pmi = add(std::move(pmi));
  if (in_step && !has_open_mpi && !has_pmi) add(read_slurm(variables));
  return sources;
}

}  // namespace tessera::detail
