#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace tessera::detail {

/// How ranks communicate.
enum class EngineKind : std::uint8_t { threads, gloo, mpi };

[[nodiscard]] const char* engine_name(EngineKind kind);

/// Environment variables by name. An empty value counts as unset.
using Variables = std::map<std::string, std::string, std::less<>>;

/// What the command line asks for.
struct LaunchFlags {
  std::optional<std::int64_t> ranks = {};
  std::optional<EngineKind> engine = {};
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// Takes `--ranks N`, `--engine NAME` and `--timeout SECONDS` (`--ranks=N` too) out of the
/// arguments and leaves the others in their order; `--` ends the search and stays.
///
/// Throws `InvalidArgument` for a flag without a value, one given twice and values that cannot be
/// meant; the arguments are then as they were.
[[nodiscard]] LaunchFlags take_launch_flags(int& argc, char** argv);

/// What a process is to be.
struct LaunchDecision {
  EngineKind engine = EngineKind::threads;
  /// With the threads engine: rank 0 of `size` threads of this process.
  std::int64_t rank = 0;
  std::int64_t size = 1;
  /// This process among those of the same host, where the launcher says so.
  std::optional<std::int64_t> local_rank;
  std::optional<std::int64_t> local_size;

  /// Where processes meet when the engine does not know by itself: of gloo with several ranks.
  /// `127.0.0.1` when all are on one host and nothing else is asked for.
  std::string master_address;
  std::uint16_t master_port = 0;
  /// Instead of them, on one host: a file of tessera_run's.
  std::string rendezvous_file;
  /// torchrun's agent listens there already, so that rank 0 must connect too.
  bool agent_serves_store = false;
  /// How often torchrun's agent has started the ranks anew; its store still holds their old keys.
  std::int64_t restart_count = 0;

  /// Unset where neither a flag nor a variable says something.
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<bool> check;

  /// Where this comes from: `torchrun (RANK=1, WORLD_SIZE=4)`, or `no launcher`.
  std::string source;
  /// The variables it comes from, for messages; unset without a launcher.
  std::string rank_name;
  std::string size_name;
  /// How address and port were found, for messages, where `MASTER_ADDR` and `MASTER_PORT` do not say
  /// them: `the first of SLURM_JOB_NODELIST=gpu[07-08]`, `derived from SLURM_JOB_ID=77`.
  std::string address_origin;
  std::string port_origin;
};

/// Decides what this process is, by the rules of `docs/launching.md`: flags, then the variables of
/// torchrun, Open MPI, PMI and Slurm. `has_mpi` says if the mpi engine is built in.
///
/// Throws `InvalidArgument` when a variable has a value that cannot be meant (stating the variable,
/// the value and what is expected), when one is missing beside another (naming it), when two
/// launchers disagree about this process (stating the variables of both), and when what is asked
/// for cannot be done under the launcher.
[[nodiscard]] LaunchDecision decide_launch(const Variables& variables, const LaunchFlags& flags,
                                           bool has_mpi);

}  // namespace tessera::detail
