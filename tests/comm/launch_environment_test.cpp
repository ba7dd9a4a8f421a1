#include "tessera/comm/launch_environment.h"

#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "launch_variables.h"

namespace tessera::detail {
namespace {

using test::on_slurm;
using test::under_mpiexec;
using test::under_mpirun;
using test::under_torchrun;
using test::with;

/// What is decided, in short: `gloo 1/4 at 127.0.0.1:29500`.
std::string summary(const LaunchDecision& decision) {
  std::string text = engine_name(decision.engine);
  text += ' ' + std::to_string(decision.rank) + '/' + std::to_string(decision.size);
  if (decision.master_port != 0) {
    text += " at " + decision.master_address + ':' + std::to_string(decision.master_port);
  }
  return text + " by " + decision.source;
}

struct Case {
  const char* name;
  Variables variables;
  LaunchFlags flags;
  std::string expected;
  bool has_mpi = true;
};
void PrintTo(const Case& sample, std::ostream* os) { *os << sample.name; }
std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

constexpr LaunchFlags kNoFlags{};
LaunchFlags ranks(std::int64_t count) { return {.ranks = count}; }
LaunchFlags engine(EngineKind kind) { return {.engine = kind}; }

class LaunchDecisionTest : public testing::TestWithParam<Case> {};

TEST_P(LaunchDecisionTest, IsTheOneExpected) {
  const auto& sample = GetParam();
  EXPECT_EQ(summary(decide_launch(sample.variables, sample.flags, sample.has_mpi)),
            sample.expected);
}

const std::string kByTorchrun = " by torchrun (RANK=1, WORLD_SIZE=4)";
const std::string kByMpirun = " by mpirun (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4)";
const std::string kByMpiexec = " by mpiexec (PMI_RANK=1, PMI_SIZE=4)";
const std::string kBySrun = " by srun (SLURM_PROCID=1, SLURM_NTASKS=4)";

INSTANTIATE_TEST_SUITE_P(
    Alone, LaunchDecisionTest,
    testing::Values(
        Case{"Nothing", {}, kNoFlags, "threads 0/1 by no launcher"},
        Case{"Ranks", {}, ranks(4), "threads 0/4 by no launcher"},
        Case{"Variable", {{"TESSERA_RANKS", "3"}}, kNoFlags, "threads 0/3 by no launcher"},
        Case{"FlagBeforeVariable",
             {{"TESSERA_RANKS", "3"}, {"TESSERA_ENGINE", "mpi"}},
             {.ranks = 5, .engine = EngineKind::threads},
             "threads 0/5 by no launcher"},
        Case{"EmptyIsUnset",
             {{"TESSERA_RANKS", ""}, {"TESSERA_ENGINE", ""}, {"RANK", ""}, {"PMI_SIZE", ""}},
             kNoFlags,
             "threads 0/1 by no launcher"},
        Case{"GlooOfOne", {}, engine(EngineKind::gloo), "gloo 0/1 by no launcher"},
        Case{"MpiOfOne",
             {{"TESSERA_ENGINE", "mpi"}, {"TESSERA_RANKS", "1"}},
             kNoFlags,
             "mpi 0/1 by no launcher"},
        Case{"MasterAloneIsNoLauncher",
             {{"MASTER_ADDR", "node"}, {"MASTER_PORT", "1"}},
             kNoFlags,
             "threads 0/1 by no launcher"},
        Case{"LocalRankAloneIsNoLauncher",
             {{"LOCAL_RANK", "0"}, {"MPI_LOCALRANKID", "0"}},
             kNoFlags,
             "threads 0/1 by no launcher"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Torchrun, LaunchDecisionTest,
    testing::Values(
        Case{"IsGloo", under_torchrun(1, 4), kNoFlags, "gloo 1/4 at node1:29500" + kByTorchrun},
        Case{"SameRanksMayBeGiven", under_torchrun(1, 4), ranks(4),
             "gloo 1/4 at node1:29500" + kByTorchrun},
        Case{"ByHandOnOneHost",
             {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_PORT", "9"}},
             kNoFlags,
             "gloo 1/4 at 127.0.0.1:9" + kByTorchrun},
        Case{"OneRankNeedsNoMaster",
             {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
             kNoFlags,
             "gloo 0/1 by torchrun (RANK=0, WORLD_SIZE=1)"},
        Case{"OneRankMayBeThreads",
             {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
             {.ranks = 8, .engine = EngineKind::threads},
             "threads 0/8 by torchrun (RANK=0, WORLD_SIZE=1)"},
        Case{"BeforeMpirunThatAgrees", with(under_torchrun(1, 4), under_mpirun(1, 4)), kNoFlags,
             "gloo 1/4 at node1:29500" + kByTorchrun},
        Case{"WithMpirunMpiIsPossible", with(under_torchrun(1, 4), under_mpirun(1, 4)),
             engine(EngineKind::mpi), "mpi 1/4" + kByTorchrun},
        Case{"AgentUnderMpirunCounts",
             with(under_torchrun(1, 4), with(under_mpirun(0, 2), {{"TORCHELASTIC_RUN_ID", "x"}})),
             kNoFlags, "gloo 1/4 at node1:29500" + kByTorchrun},
        Case{"AgentUnderSrunCounts",
             with(under_torchrun(1, 4), with(on_slurm(0, 2), {{"TORCHELASTIC_RUN_ID", "x"}})),
             kNoFlags, "gloo 1/4 at node1:29500" + kByTorchrun}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Mpi, LaunchDecisionTest,
    testing::Values(Case{"MpirunIsMpi", under_mpirun(1, 4), kNoFlags, "mpi 1/4" + kByMpirun},
                    Case{"MpirunIsMpiEvenIfNotBuilt", under_mpirun(1, 4), kNoFlags,
                         "mpi 1/4" + kByMpirun, false},
                    Case{"MpiexecIsMpi", under_mpiexec(1, 4), kNoFlags, "mpi 1/4" + kByMpiexec},
                    Case{"MpirunWithGloo", with(under_mpirun(1, 4), {{"MASTER_PORT", "1234"}}),
                         engine(EngineKind::gloo), "gloo 1/4 at 127.0.0.1:1234" + kByMpirun},
                    Case{"MpirunOnTwoHostsWithGloo",
                         with(under_mpirun(1, 4), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                   {"MASTER_ADDR", "10.0.0.1"},
                                                   {"MASTER_PORT", "1234"}}),
                         engine(EngineKind::gloo), "gloo 1/4 at 10.0.0.1:1234" + kByMpirun},
                    Case{"MpirunOfOneMayBeThreads",
                         under_mpirun(0, 1),
                         {.ranks = 4, .engine = EngineKind::threads},
                         "threads 0/4 by mpirun (OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=1)"},
                    Case{"MpirunAndPmiThatAgree", with(under_mpirun(1, 4), under_mpiexec(1, 4)),
                         kNoFlags, "mpi 1/4" + kByMpirun},
                    Case{"MpirunReachesHostsBySrun", with(under_mpirun(1, 4), on_slurm(0, 2)),
                         kNoFlags, "mpi 1/4" + kByMpirun},
                    Case{"MpirunStartedBySrunWithPmi",
                         with(under_mpirun(1, 4), with(on_slurm(0, 1), under_mpiexec(0, 1))),
                         kNoFlags, "mpi 1/4" + kByMpirun},
                    Case{"MpiexecReachesHostsBySrun", with(under_mpiexec(1, 4), on_slurm(0, 2)),
                         kNoFlags, "mpi 1/4" + kByMpiexec},
                    Case{"MpirunIgnoresWhatSlurmSays",
                         with(under_mpirun(1, 4), {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "x"}}),
                         kNoFlags, "mpi 1/4" + kByMpirun}),
    name_of);

// 20000 + (77 * 37 + 3) % 10000 = 22852.
INSTANTIATE_TEST_SUITE_P(
    Slurm, LaunchDecisionTest,
    testing::Values(
        Case{"IsMpi", on_slurm(1, 4), kNoFlags, "mpi 1/4" + kBySrun},
        Case{"IsGlooWithoutMpi", on_slurm(1, 4), kNoFlags, "gloo 1/4 at gpu07:22852" + kBySrun,
             false},
        Case{"GlooMayBeAskedFor", on_slurm(1, 4), engine(EngineKind::gloo),
             "gloo 1/4 at gpu07:22852" + kBySrun},
        Case{"GlooOnOneHost", with(on_slurm(1, 4), {{"SLURM_NNODES", "1"}}),
             engine(EngineKind::gloo), "gloo 1/4 at 127.0.0.1:22852" + kBySrun},
        Case{"StepCountsItsOwnHosts",
             with(on_slurm(1, 4), {{"SLURM_NNODES", "2"}, {"SLURM_STEP_NUM_NODES", "1"}}),
             engine(EngineKind::gloo), "gloo 1/4 at 127.0.0.1:22852" + kBySrun},
        Case{"StepHasItsOwnHosts", with(on_slurm(1, 4), {{"SLURM_STEP_NODELIST", "gpu[09,11]"}}),
             engine(EngineKind::gloo), "gloo 1/4 at gpu09:22852" + kBySrun},
        Case{"StepCountsItsOwnTasks", with(on_slurm(1, 8), {{"SLURM_STEP_NUM_TASKS", "4"}}),
             kNoFlags, "mpi 1/4 by srun (SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=4)"},
        Case{"MasterMayBeGiven",
             with(on_slurm(1, 4), {{"MASTER_ADDR", "::1"}, {"MASTER_PORT", "7"}}),
             engine(EngineKind::gloo), "gloo 1/4 at ::1:7" + kBySrun},
        Case{"WithPmi2IsStillSlurm", with(on_slurm(1, 4), under_mpiexec(1, 4)), kNoFlags,
             "gloo 1/4 at gpu07:22852" + kBySrun, false},
        Case{"OneTaskIsAlone", on_slurm(0, 1), ranks(4), "threads 0/4 by no launcher"},
        Case{"OldNameOfTheStep",
             {{"SLURM_STEPID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}},
             kNoFlags,
             "mpi 1/4" + kBySrun},
        // salloc's shell: an allocation, but srun did not start this process.
        Case{"ShellOfAnAllocation",
             {{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "gpu[07-08]"}},
             ranks(2),
             "threads 0/2 by no launcher"},
        // sbatch's script has a task number, but no step.
        Case{"BatchScript",
             {{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}},
             kNoFlags,
             "threads 0/1 by no launcher"},
        Case{"StepWithoutTask",
             {{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}},
             kNoFlags,
             "threads 0/1 by no launcher"},
        // salloc with use_interactive_step runs its shell in a reserved step.
        Case{"InteractiveStep", with(on_slurm(0, 4), {{"SLURM_STEP_ID", "4294967290"}}), kNoFlags,
             "threads 0/1 by no launcher"}),
    name_of);

TEST(LaunchDecisionTest, SaysWhereARankIsOnItsHost) {
  const auto decision = decide_launch(
      with(under_torchrun(3, 4), {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}), {}, true);
  EXPECT_EQ(decision.local_rank, 1);
  EXPECT_EQ(decision.local_size, 2);
  const auto slurm = decide_launch(with(on_slurm(1, 4), {{"SLURM_LOCALID", "1"}}), {}, true);
  EXPECT_EQ(slurm.local_rank, 1);
  EXPECT_EQ(slurm.local_size, std::nullopt);
  EXPECT_EQ(decide_launch({}, ranks(4), true).local_size, std::nullopt);
}

TEST(LaunchDecisionTest, KnowsTorchrunsAgent) {
  const auto plain = decide_launch(under_torchrun(1, 4), {}, true);
  EXPECT_FALSE(plain.agent_serves_store);
  EXPECT_EQ(plain.restart_count, 0);
  const auto agent = decide_launch(
      with(under_torchrun(1, 4),
           {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}),
      {}, true);
  EXPECT_TRUE(agent.agent_serves_store);
  EXPECT_EQ(agent.restart_count, 2);
}

TEST(LaunchDecisionTest, KnowsTesseraRunsFile) {
  auto variables = with(under_torchrun(1, 4), {{"TESSERA_RENDEZVOUS_FILE", "/tmp/x/file"}});
  variables["TORCHELASTIC_RUN_ID"] = "tessera_run";
  EXPECT_EQ(decide_launch(variables, {}, true).rendezvous_file, "/tmp/x/file");
  // Inherited by ranks of another launcher.
  variables["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(decide_launch(variables, {}, true).rendezvous_file, "");
}

TEST(LaunchDecisionTest, NamesTheVariablesForMessages) {
  const auto torchrun = decide_launch(under_torchrun(1, 4), {}, true);
  EXPECT_EQ(torchrun.rank_name, "RANK");
  EXPECT_EQ(torchrun.size_name, "WORLD_SIZE");
  EXPECT_EQ(torchrun.address_origin, "");
  EXPECT_EQ(torchrun.port_origin, "");
  const auto slurm = decide_launch(on_slurm(1, 4), engine(EngineKind::gloo), true);
  EXPECT_EQ(slurm.rank_name, "SLURM_PROCID");
  EXPECT_EQ(slurm.size_name, "SLURM_NTASKS");
}

TEST(LaunchDecisionTest, SaysHowSlurmsAddressAndPortWereFound) {
  const auto decide = [](const Variables& more) {
    return decide_launch(with(on_slurm(1, 4), more), engine(EngineKind::gloo), true);
  };
  const auto job = decide({});
  EXPECT_EQ(job.master_address, "gpu07");
  EXPECT_EQ(job.address_origin, "the first of SLURM_JOB_NODELIST=gpu[07-08]");
  EXPECT_EQ(job.master_port, 22852);
  EXPECT_EQ(job.port_origin, "derived from SLURM_JOB_ID=77 and SLURM_STEP_ID=3");
  const auto old_names = decide({{"SLURM_JOB_ID", ""},
                                 {"SLURM_JOBID", "77"},
                                 {"SLURM_STEP_ID", ""},
                                 {"SLURM_STEPID", "3"},
                                 {"SLURM_STEP_NODELIST", "gpu08"}});
  EXPECT_EQ(old_names.address_origin, "the first of SLURM_STEP_NODELIST=gpu08");
  EXPECT_EQ(old_names.port_origin, "derived from SLURM_JOBID=77 and SLURM_STEPID=3");
  EXPECT_EQ(decide({{"SLURM_NNODES", "1"}}).address_origin, "as all ranks are on one host");
  const auto given = decide({{"MASTER_ADDR", "gpu08"}, {"MASTER_PORT", "7"}});
  EXPECT_EQ(given.address_origin, "");
  EXPECT_EQ(given.port_origin, "");
}

TEST(LaunchDecisionTest, ReadsTimeoutAndCheck) {
  using std::chrono::milliseconds;
  EXPECT_EQ(decide_launch({}, {}, true).timeout, std::nullopt);
  EXPECT_EQ(decide_launch({}, {}, true).check, std::nullopt);
  const Variables variables = {{"TESSERA_TIMEOUT", "0.25"}, {"TESSERA_CHECK", "0"}};
  EXPECT_EQ(decide_launch(variables, {}, true).timeout, milliseconds(250));
  EXPECT_EQ(decide_launch(variables, {}, true).check, false);
  EXPECT_EQ(decide_launch({{"TESSERA_CHECK", "1"}}, {}, true).check, true);
  EXPECT_EQ(decide_launch(variables, {.timeout = milliseconds(7)}, true).timeout, milliseconds(7));
}

}  // namespace
}  // namespace tessera::detail
