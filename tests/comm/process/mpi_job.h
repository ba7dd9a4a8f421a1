#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <sys/types.h>

#include "comm/process/run_processes.h"

namespace tessera::test {

/// `mpirun -n SIZE mpi_ranks CASE [NUMBER]`, as a process of its own.
class MpiJob {
 public:
  MpiJob(int size, const std::string& name, const std::vector<std::string>& flags = {});

  [[nodiscard]] Processes& processes() { return processes_; }
  ProcessResult finish(std::chrono::milliseconds limit = std::chrono::seconds(60)) {
    return processes_.finish(limit)[0];
  }

  /// The process ids of the ranks by rank, from what they print when they are ready; empty when not all
  /// of them have.
  [[nodiscard]] std::vector<pid_t> pids() const;
  /// The same, when they are ready; empty after half a minute.
  std::vector<pid_t> wait_until_ready();

 private:
  std::size_t size_;
  TemporaryFolder folder_;
  Processes processes_;
};

}  // namespace tessera::test
