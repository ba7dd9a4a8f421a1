#pragma once

#include <cstdint>
#include <string>

#include "tessera/comm/launch_environment.h"

/// The variables that launchers set.
namespace tessera::test {

using detail::Variables;

/// `variables` with those of `others` set over them.
inline Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

inline Variables under_torchrun(std::int64_t rank, std::int64_t size) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "node1"},
          {"MASTER_PORT", "29500"}};
}

/// All ranks on one host.
inline Variables under_mpirun(std::int64_t rank, std::int64_t size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(size)}};
}

inline Variables under_mpiexec(std::int64_t rank, std::int64_t size) {
  return {{"PMI_RANK", std::to_string(rank)},
          {"PMI_SIZE", std::to_string(size)},
          {"MPI_LOCALRANKID", std::to_string(rank)}};
}

/// A task of step 3 of job 77, on the hosts gpu07 and gpu08.
inline Variables on_slurm(std::int64_t rank, std::int64_t size) {
  return {{"SLURM_JOB_ID", "77"},
          {"SLURM_STEP_ID", "3"},
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_NTASKS", std::to_string(size)},
          {"SLURM_NNODES", "2"},
          {"SLURM_JOB_NODELIST", "gpu[07-08]"}};
}

}  // namespace tessera::test
