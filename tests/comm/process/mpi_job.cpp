#include "comm/process/mpi_job.h"

#include <cstdlib>
#include <regex>
#include <sstream>

#include <unistd.h>

#include "tessera/base/concat.h"

namespace tessera::test {
namespace {

/// Becomes mpirun.
int run_mpi(int size, const std::string& name, const std::vector<std::string>& flags,
            const std::string& folder) {
  // Open MPI keeps files there, in which several jobs can get into each other's way.
  setenv("TMPDIR", folder.c_str(), 1);
  std::vector<std::string> words = {
      TESSERA_MPIEXEC, "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader", "-n",
      concat(size)};
  words.insert(words.end(), flags.begin(), flags.end());
  words.push_back(TESSERA_MPI_RANKS);
  std::istringstream parts(name);
  for (std::string part; parts >> part;) words.push_back(part);
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return 127;
}

}  // namespace

MpiJob::MpiJob(int size, const std::string& name, const std::vector<std::string>& flags)
    : size_(static_cast<std::size_t>(size)), processes_(1, [=, this](std::int64_t) {
        return run_mpi(size, name, flags, folder_.path());
      }) {}

std::vector<pid_t> MpiJob::pids() const {
  static const std::regex kReady("ready, rank ([0-9]+) is process ([0-9]+)");
  const std::string& output = processes_.output(0);
  std::vector<pid_t> pids(size_, 0);
  std::size_t found = 0;
  for (std::sregex_iterator it(output.begin(), output.end(), kReady), end; it != end; ++it) {
    pids[std::stoul((*it)[1])] = std::stoi((*it)[2]);
    ++found;
  }
  return found == size_ ? pids : std::vector<pid_t>();
}

std::vector<pid_t> MpiJob::wait_until_ready() {
  for (int attempt = 0; attempt < 3000 && pids().empty(); ++attempt) {
    (void)processes_.wait_for_output("\x01", std::chrono::milliseconds(10));
  }
  return pids();
}

}  // namespace tessera::test
