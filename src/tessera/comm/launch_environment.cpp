#include "tessera/comm/launch_environment.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/comm/launch_sources.h"
#include "tessera/comm/launch_values.h"

namespace tessera::detail {
namespace {

/// What the user asks for by a flag or, without one, by a variable.
struct Wishes {
  std::optional<std::int64_t> ranks;
  std::optional<EngineKind> engine;
  /// `--ranks 4` or `TESSERA_RANKS=4`.
  std::string ranks_text;
  std::string engine_text;
};

Wishes read_wishes(const Variables& variables, const LaunchFlags& flags) {
  Wishes wishes;
  wishes.ranks = flags.ranks;
  wishes.engine = flags.engine;
  if (flags.ranks) wishes.ranks_text = concat("--ranks ", *flags.ranks);
  if (flags.engine) wishes.engine_text = concat("--engine ", engine_name(*flags.engine));
  if (!flags.ranks) {
    wishes.ranks = find_integer(variables, "TESSERA_RANKS", 1, kMostRanks);
    if (wishes.ranks) wishes.ranks_text = concat("TESSERA_RANKS=", *wishes.ranks);
  }
  const auto engine = find_variable(variables, "TESSERA_ENGINE");
  if (!flags.engine && engine) {
    wishes.engine = read_engine("TESSERA_ENGINE=", *engine);
    wishes.engine_text = concat("TESSERA_ENGINE=", *engine);
  }
  return wishes;
}

/// `torchrun (RANK=1, WORLD_SIZE=4)`.
std::string source_text(const LaunchSource& source) {
  return concat(source.command, " (", source.values, ')');
}

void check_agreement(const std::vector<LaunchSource>& sources) {
  for (const auto& other : sources) {
    const auto& first = sources.front();
    TESSERA_CHECK(first.rank == other.rank && first.size == other.size, "launch: ", first.values,
                  " (of ", first.command, ") and ", other.values, " (of ", other.command,
                  ") disagree about this process; unset those that are not meant");
  }
}

void be_threads(LaunchDecision& decision, const Wishes& wishes) {
  decision.engine = EngineKind::threads;
  decision.rank = 0;
  decision.size = wishes.ranks.value_or(1);
  decision.local_rank.reset();
  decision.local_size.reset();
  TESSERA_CHECK(decision.size <= kMostThreads, "launch: ", wishes.ranks_text,
                " given for threads of one process; an integer from 1 to ", kMostThreads,
                " is expected");
}

/// Nobody started this process as a rank.
void decide_alone(LaunchDecision& decision, const Wishes& wishes) {
  decision.source = "no launcher";
  const EngineKind engine = wishes.engine.value_or(EngineKind::threads);
  if (engine == EngineKind::threads) return be_threads(decision, wishes);
  decision.engine = engine;
  decision.size = wishes.ranks.value_or(1);
  TESSERA_CHECK(decision.size == 1, "launch: ", wishes.ranks_text, " given with ",
                wishes.engine_text, ", where each rank is a process; start it with `",
                engine == EngineKind::mpi ? "mpirun -n " : "tessera_run --nproc-per-node ",
                decision.size, "`, or leave the engine out to run the ranks as threads");
}

EngineKind default_engine(Launcher launcher, bool has_mpi) {
  switch (launcher) {
    case Launcher::torchrun:
      return EngineKind::gloo;
    case Launcher::open_mpi:
    case Launcher::pmi:
      return EngineKind::mpi;
    case Launcher::slurm:
      break;
  }
  return has_mpi ? EngineKind::mpi : EngineKind::gloo;
}

/// A launcher started this process as a rank; `sources` agree on which.
void decide_launched(LaunchDecision& decision, const Wishes& wishes,
                     const std::vector<LaunchSource>& sources, bool has_mpi) {
  const LaunchSource& source = sources.front();
  decision.source = source_text(source);
  decision.engine = wishes.engine.value_or(default_engine(source.launcher, has_mpi));
  decision.rank = source.rank;
  decision.size = source.size;
  decision.local_rank = source.local_rank;
  decision.local_size = source.local_size;
  decision.rank_name = source.rank_name;
  decision.size_name = source.size_name;
  if (decision.engine == EngineKind::threads) {
    TESSERA_CHECK(
        source.size == 1, "launch: ", wishes.engine_text, " given under ", decision.source,
        ", where each rank is a process; take another engine, or run the program without ",
        source.command, " and with --ranks ", source.size);
    return be_threads(decision, wishes);
  }
  TESSERA_CHECK(wishes.ranks.value_or(source.size) == source.size, "launch: ", wishes.ranks_text,
                " given under ", decision.source,
                ", which decides on the number of ranks; leave it "
                "out",
                source.size == 1 ? ", or add --engine threads to run them in this process" : "");
  const bool is_mpi_possible =
      source.size == 1 || std::any_of(sources.begin(), sources.end(), [](const auto& candidate) {
        return candidate.launcher != Launcher::torchrun;
      });
  TESSERA_CHECK(decision.engine != EngineKind::mpi || is_mpi_possible,
                "launch: ", wishes.engine_text, " given under ", decision.source,
                "; MPI needs ranks that mpirun, mpiexec or srun started");
}

/// A number of Slurm's, and the variable that has it: `SLURM_JOB_ID=77`.
struct SlurmNumber {
  std::int64_t value = 0;
  std::string text;
};

/// Reads the first of the variables that is set.
std::optional<SlurmNumber> find_slurm_number(const Variables& variables,
                                             std::initializer_list<const char*> names) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  for (const char* name : names) {
    const auto value = find_integer(variables, name, 0, kMost);
    if (value) return SlurmNumber{*value, concat(name, '=', *value)};
  }
  return std::nullopt;
}

/// Finds the port that all ranks of a Slurm step derive alike, outside of the range from which the
/// system gives ports away by itself. False without a job.
bool find_slurm_port(LaunchDecision& decision, const Variables& variables) {
  const auto job = find_slurm_number(variables, {"SLURM_JOB_ID", "SLURM_JOBID"});
  if (!job) return false;
  const auto step = find_slurm_number(variables, {"SLURM_STEP_ID", "SLURM_STEPID"});
  const std::int64_t number = job->value * 37 + (step ? step->value : 0);
  decision.master_port = static_cast<std::uint16_t>(20000 + number % 10000);
  decision.port_origin =
      concat("derived from ", job->text, step ? " and " : "", step ? step->text : "");
  return true;
}

[[noreturn]] void throw_missing(const char* name, const LaunchSource& source) {
  const char* remedy =
      source.launcher == Launcher::torchrun
          ? "torchrun and tessera_run set it"
          : "set it alike on all ranks (mpirun -x), or leave the engine out to use MPI";
  throw InvalidArgument(concat("launch: ", name, " is missing; engine gloo needs it under ",
                               source_text(source), " to know where rank 0 is; ", remedy));
}

void find_address(LaunchDecision& decision, const Variables& variables,
                  const LaunchSource& source) {
  const auto address = find_variable(variables, "MASTER_ADDR");
  if (address) {
    const bool is_plain = std::all_of(address->begin(), address->end(),
                                      [](char letter) { return letter > ' ' && letter < 127; });
    TESSERA_CHECK(is_plain, "launch: MASTER_ADDR=", *address,
                  " given; the name or the address of the host of rank 0 is expected");
    decision.master_address = *address;
    return;
  }
  if (decision.local_size == decision.size) {
    decision.master_address = "127.0.0.1";
    decision.address_origin = "as all ranks are on one host";
    return;
  }
  if (source.launcher != Launcher::slurm) throw_missing("MASTER_ADDR", source);
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const auto list = find_variable(variables, name);
    if (!list) continue;
    decision.master_address = read_first_host(concat(name, '='), *list);
    decision.address_origin = concat("the first of ", name, '=', *list);
    return;
  }
  throw_missing("SLURM_JOB_NODELIST", source);
}

void find_port(LaunchDecision& decision, const Variables& variables, const LaunchSource& source) {
  const auto port = find_integer(variables, "MASTER_PORT", 1, 65535);
  if (port) {
    decision.master_port = static_cast<std::uint16_t>(*port);
    return;
  }
  const bool is_found = source.launcher == Launcher::slurm && find_slurm_port(decision, variables);
  if (!is_found) throw_missing("MASTER_PORT", source);
}

/// Finds where the ranks of the gloo engine meet.
void find_master(LaunchDecision& decision, const Variables& variables, const LaunchSource& source) {
  find_address(decision, variables, source);
  find_port(decision, variables, source);
  // Any other launcher below tessera_run inherits the variable, which is not meant for its ranks.
  const auto file = find_variable(variables, "TESSERA_RENDEZVOUS_FILE");
  const bool is_by_tessera_run = find_variable(variables, "TORCHELASTIC_RUN_ID") == "tessera_run";
  if (file && is_by_tessera_run) decision.rendezvous_file = *file;
}

/// What torchrun's agent says beyond ranks.
void read_agent(LaunchDecision& decision, const Variables& variables) {
  const auto serves = find_variable(variables, "TORCHELASTIC_USE_AGENT_STORE");
  if (serves) {
    TESSERA_CHECK(*serves == "True" || *serves == "False",
                  "launch: TORCHELASTIC_USE_AGENT_STORE=", *serves,
                  " given; True or False is expected");
    decision.agent_serves_store = *serves == "True";
  }
  decision.restart_count = find_integer(variables, "TORCHELASTIC_RESTART_COUNT", 0,
                                        std::numeric_limits<std::int32_t>::max())
                               .value_or(0);
}

}  // namespace

const char* engine_name(EngineKind kind) {
  switch (kind) {
    case EngineKind::threads:
      return "threads";
    case EngineKind::gloo:
      return "gloo";
    case EngineKind::mpi:
      break;
  }
  return "mpi";
}

LaunchDecision decide_launch(const Variables& variables, const LaunchFlags& flags, bool has_mpi) {
  LaunchDecision decision;
  const auto timeout = find_variable(variables, "TESSERA_TIMEOUT");
  decision.timeout = flags.timeout;
  if (timeout && !flags.timeout) decision.timeout = read_timeout("TESSERA_TIMEOUT=", *timeout);
  const auto check = find_variable(variables, "TESSERA_CHECK");
  if (check) decision.check = read_switch("TESSERA_CHECK=", *check);

  const Wishes wishes = read_wishes(variables, flags);
  const auto sources = find_launch_sources(variables);
  if (sources.empty()) {
    decide_alone(decision, wishes);
    return decision;
  }
  check_agreement(sources);
  decide_launched(decision, wishes, sources, has_mpi);
  if (decision.engine != EngineKind::gloo || decision.size == 1) return decision;
  find_master(decision, variables, sources.front());
  if (sources.front().launcher == Launcher::torchrun) read_agent(decision, variables);
  return decision;
}

}  // namespace tessera::detail
