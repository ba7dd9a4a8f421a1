#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "launch_variables.h"
#include "tessera/comm/launch_environment.h"
#include "tessera/comm/launch_values.h"

namespace tessera::detail {
namespace {

using test::on_slurm;
using test::throws_invalid_argument;
using test::under_mpiexec;
using test::under_mpirun;
using test::under_torchrun;
using test::with;

struct Case {
  const char* name;
  Variables variables;
  LaunchFlags flags;
  /// Behind `launch: `.
  const char* message;
};
void PrintTo(const Case& sample, std::ostream* os) { *os << sample.name; }
std::string name_of(const testing::TestParamInfo<Case>& info) { return info.param.name; }

constexpr LaunchFlags kNoFlags{};
constexpr LaunchFlags kGloo{.engine = EngineKind::gloo};
constexpr LaunchFlags kMpi{.engine = EngineKind::mpi};
constexpr LaunchFlags kThreads{.engine = EngineKind::threads};

class LaunchErrorTest : public testing::TestWithParam<Case> {};

TEST_P(LaunchErrorTest, SaysWhatIsWrong) {
  const auto& sample = GetParam();
  EXPECT_THAT([&] { return decide_launch(sample.variables, sample.flags, true); },
              throws_invalid_argument(std::string("launch: ") + sample.message));
}

INSTANTIATE_TEST_SUITE_P(
    Values, LaunchErrorTest,
    testing::Values(
        Case{"RankIsNoNumber", with(under_torchrun(0, 4), {{"RANK", "one"}}), kNoFlags,
             "RANK=one given; an integer from 0 to 16777215 is expected"},
        Case{"RankIsNegative", with(under_torchrun(0, 4), {{"RANK", "-1"}}), kNoFlags,
             "RANK=-1 given; an integer from 0 to 16777215 is expected"},
        Case{"RankHasBlanks", with(under_torchrun(0, 4), {{"RANK", " 1"}}), kNoFlags,
             "RANK= 1 given; an integer from 0 to 16777215 is expected"},
        Case{"RankIsTooLargeForAnInteger",
             with(under_torchrun(0, 4), {{"RANK", "99999999999999999999"}}), kNoFlags,
             "RANK=99999999999999999999 given; an integer from 0 to 16777215 is expected"},
        Case{"SizeIsZero", with(under_mpirun(0, 4), {{"OMPI_COMM_WORLD_SIZE", "0"}}), kNoFlags,
             "OMPI_COMM_WORLD_SIZE=0 given; an integer from 1 to 16777216 is expected"},
        Case{"SizeIsAFraction", with(under_mpiexec(0, 4), {{"PMI_SIZE", "4.0"}}), kNoFlags,
             "PMI_SIZE=4.0 given; an integer from 1 to 16777216 is expected"},
        Case{"RankIsNotBelowSize", under_torchrun(4, 4), kNoFlags,
             "RANK=4 given with WORLD_SIZE=4; a rank from 0 to 3 is expected"},
        Case{"MpiRankIsNotBelowSize", under_mpirun(7, 4), kNoFlags,
             "OMPI_COMM_WORLD_RANK=7 given with OMPI_COMM_WORLD_SIZE=4; a rank from 0 to 3 is "
             "expected"},
        Case{"SlurmRankIsNotBelowSize", on_slurm(7, 4), kNoFlags,
             "SLURM_PROCID=7 given with SLURM_NTASKS=4; a rank from 0 to 3 is expected"},
        Case{"LocalRankIsNotBelowLocalSize",
             with(under_torchrun(1, 4), {{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}), kNoFlags,
             "LOCAL_RANK=2 given with LOCAL_WORLD_SIZE=2; a local rank from 0 to 1 is expected"},
        Case{"LocalRankIsNotBelowSize", with(on_slurm(1, 4), {{"SLURM_LOCALID", "4"}}), kNoFlags,
             "SLURM_LOCALID=4 given with SLURM_NTASKS=4; a local rank from 0 to 3 is expected"},
        Case{"LocalSizeIsAboveSize", with(under_torchrun(1, 4), {{"LOCAL_WORLD_SIZE", "8"}}),
             kNoFlags,
             "LOCAL_WORLD_SIZE=8 given with WORLD_SIZE=4; no more ranks on one host than there are "
             "in all are expected"},
        Case{"PortIsTooLarge", with(under_torchrun(1, 4), {{"MASTER_PORT", "65536"}}), kNoFlags,
             "MASTER_PORT=65536 given; an integer from 1 to 65535 is expected"},
        Case{"PortIsZero", with(under_torchrun(1, 4), {{"MASTER_PORT", "0"}}), kNoFlags,
             "MASTER_PORT=0 given; an integer from 1 to 65535 is expected"},
        Case{"AddressHasBlanks", with(under_torchrun(1, 4), {{"MASTER_ADDR", "node 1"}}), kNoFlags,
             "MASTER_ADDR=node 1 given; the name or the address of the host of rank 0 is expected"},
        Case{"StepIsNoNumber", with(on_slurm(1, 4), {{"SLURM_STEP_ID", "batch"}}), kNoFlags,
             "SLURM_STEP_ID=batch given; an integer from 0 to 9223372036854775807 is expected"},
        Case{"AgentStore", with(under_torchrun(1, 4), {{"TORCHELASTIC_USE_AGENT_STORE", "yes"}}),
             kNoFlags, "TORCHELASTIC_USE_AGENT_STORE=yes given; True or False is expected"},
        Case{"RestartCount", with(under_torchrun(1, 4), {{"TORCHELASTIC_RESTART_COUNT", "x"}}),
             kNoFlags,
             "TORCHELASTIC_RESTART_COUNT=x given; an integer from 0 to 2147483647 is expected"},
        Case{"Ranks",
             {{"TESSERA_RANKS", "0"}},
             kNoFlags,
             "TESSERA_RANKS=0 given; an integer from 1 to 16777216 is expected"},
        Case{
            "TooManyThreads",
            {},
            {.ranks = 5000},
            "--ranks 5000 given for threads of one process; an integer from 1 to 4096 is expected"},
        Case{"Engine",
             {{"TESSERA_ENGINE", "nccl"}},
             kNoFlags,
             "TESSERA_ENGINE=nccl given; threads, gloo or mpi is expected"},
        Case{"Timeout",
             {{"TESSERA_TIMEOUT", "0"}},
             kNoFlags,
             "TESSERA_TIMEOUT=0 given; a number of seconds above 0 and up to 10000000 is expected"},
        Case{"TimeoutIsInfinite",
             {{"TESSERA_TIMEOUT", "inf"}},
             kNoFlags,
             "TESSERA_TIMEOUT=inf given; a number of seconds above 0 and up to 10000000 is "
             "expected"},
        Case{"Check",
             {{"TESSERA_CHECK", "off"}},
             kNoFlags,
             "TESSERA_CHECK=off given; 0 or 1 is expected"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Missing, LaunchErrorTest,
    testing::Values(
        Case{"WorldSize",
             {{"RANK", "1"}},
             kNoFlags,
             "RANK=1 given, but WORLD_SIZE is missing; set both or none, as torchrun does"},
        Case{"Rank",
             {{"WORLD_SIZE", "4"}, {"RANK", ""}},
             kNoFlags,
             "WORLD_SIZE=4 given, but RANK is missing; set both or none, as torchrun does"},
        Case{"RankBesideMpirun", with(under_mpirun(1, 4), {{"WORLD_SIZE", "4"}}), kNoFlags,
             "WORLD_SIZE=4 given, but RANK is missing; set both or none, as torchrun does"},
        Case{"MpirunsSize",
             {{"OMPI_COMM_WORLD_RANK", "0"}},
             kNoFlags,
             "OMPI_COMM_WORLD_RANK=0 given, but OMPI_COMM_WORLD_SIZE is missing; set both or none, "
             "as mpirun does"},
        Case{"PmisRank",
             {{"PMI_SIZE", "2"}},
             kNoFlags,
             "PMI_SIZE=2 given, but PMI_RANK is missing; set both or none, as mpiexec does"},
        Case{"SlurmsSize",
             {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}},
             kNoFlags,
             "SLURM_PROCID=1 given, but SLURM_NTASKS is missing; set both or none, as srun does"},
        Case{
            "Address",
            {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "1"}},
            kNoFlags,
            "MASTER_ADDR is missing; engine gloo needs it under torchrun (RANK=1, WORLD_SIZE=4) to "
            "know where rank 0 is; torchrun and tessera_run set it"},
        Case{
            "Port",
            {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node1"}},
            kNoFlags,
            "MASTER_PORT is missing; engine gloo needs it under torchrun (RANK=1, WORLD_SIZE=4) to "
            "know where rank 0 is; torchrun and tessera_run set it"},
        Case{"PortUnderMpirun", under_mpirun(1, 4), kGloo,
             "MASTER_PORT is missing; engine gloo needs it under mpirun (OMPI_COMM_WORLD_RANK=1, "
             "OMPI_COMM_WORLD_SIZE=4) to know where rank 0 is; set it alike on all ranks "
             "(mpirun -x), or leave the engine out to use MPI"},
        Case{"AddressUnderMpiexec", under_mpiexec(1, 4), kGloo,
             "MASTER_ADDR is missing; engine gloo needs it under mpiexec (PMI_RANK=1, PMI_SIZE=4) "
             "to know where rank 0 is; set it alike on all ranks (mpirun -x), or leave the engine "
             "out to use MPI"},
        Case{"SlurmsHosts", with(on_slurm(1, 4), {{"SLURM_JOB_NODELIST", ""}}), kGloo,
             "SLURM_JOB_NODELIST is missing; engine gloo needs it under srun (SLURM_PROCID=1, "
             "SLURM_NTASKS=4) to know where rank 0 is; set it alike on all ranks (mpirun -x), or "
             "leave the engine out to use MPI"},
        Case{"SlurmsJob", with(on_slurm(1, 4), {{"SLURM_JOB_ID", ""}}), kGloo,
             "MASTER_PORT is missing; engine gloo needs it under srun (SLURM_PROCID=1, "
             "SLURM_NTASKS=4) to know where rank 0 is; set it alike on all ranks (mpirun -x), or "
             "leave the engine out to use MPI"}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Contradictions, LaunchErrorTest,
    testing::Values(
        Case{
            "TorchrunAndMpirun", with(under_torchrun(1, 4), under_mpirun(0, 4)), kNoFlags,
            "RANK=1, WORLD_SIZE=4 (of torchrun) and OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=4 "
            "(of mpirun) disagree about this process; unset those that are not meant"},
        Case{
            "TorchrunAndMpirunInSize", with(under_torchrun(1, 4), under_mpirun(1, 8)), kNoFlags,
            "RANK=1, WORLD_SIZE=4 (of torchrun) and OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=8 "
            "(of mpirun) disagree about this process; unset those that are not meant"},
        Case{"TorchrunAndPmi", with(under_torchrun(1, 4), under_mpiexec(2, 4)), kNoFlags,
             "RANK=1, WORLD_SIZE=4 (of torchrun) and PMI_RANK=2, PMI_SIZE=4 (of mpiexec) disagree "
             "about this process; unset those that are not meant"},
        // RANK exported before srun: all tasks would be rank 0.
        Case{"TorchrunByHandAndSlurm", with(under_torchrun(0, 4), on_slurm(2, 4)), kNoFlags,
             "RANK=0, WORLD_SIZE=4 (of torchrun) and SLURM_PROCID=2, SLURM_NTASKS=4 (of srun) "
             "disagree about this process; unset those that are not meant"},
        Case{
            "MpirunAndPmi", with(under_mpirun(1, 4), under_mpiexec(0, 2)), kNoFlags,
            "OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4 (of mpirun) and PMI_RANK=0, PMI_SIZE=2 "
            "(of mpiexec) disagree about this process; unset those that are not meant"},
        Case{
            "RanksUnderTorchrun",
            under_torchrun(1, 4),
            {.ranks = 2},
            "--ranks 2 given under torchrun (RANK=1, WORLD_SIZE=4), which decides on the number of "
            "ranks; leave it out"},
        Case{"RanksVariableUnderSrun", with(on_slurm(1, 4), {{"TESSERA_RANKS", "2"}}), kNoFlags,
             "TESSERA_RANKS=2 given under srun (SLURM_PROCID=1, SLURM_NTASKS=4), which decides on "
             "the number of ranks; leave it out"},
        Case{"RanksUnderMpirunOfOne",
             under_mpirun(0, 1),
             {.ranks = 2},
             "--ranks 2 given under mpirun (OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=1), which "
             "decides on the number of ranks; leave it out, or add --engine threads to run them in "
             "this process"},
        Case{
            "ThreadsUnderMpirun", under_mpirun(1, 4), kThreads,
            "--engine threads given under mpirun (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4), "
            "where each rank is a process; take another engine, or run the program without mpirun "
            "and with --ranks 4"},
        Case{"ThreadsVariableUnderTorchrun",
             with(under_torchrun(1, 4), {{"TESSERA_ENGINE", "threads"}}), kNoFlags,
             "TESSERA_ENGINE=threads given under torchrun (RANK=1, WORLD_SIZE=4), where each rank "
             "is a process; take another engine, or run the program without torchrun and with "
             "--ranks 4"},
        Case{"MpiUnderTorchrun", under_torchrun(1, 4), kMpi,
             "--engine mpi given under torchrun (RANK=1, WORLD_SIZE=4); MPI needs ranks that "
             "mpirun, mpiexec or srun started"},
        Case{"MpiUnderAgentUnderMpirun",
             with(under_torchrun(1, 4), with(under_mpirun(1, 4), {{"TORCHELASTIC_RUN_ID", "x"}})),
             kMpi,
             "--engine mpi given under torchrun (RANK=1, WORLD_SIZE=4); MPI needs ranks that "
             "mpirun, mpiexec or srun started"},
        Case{"GlooRanksAlone",
             {},
             {.ranks = 4, .engine = EngineKind::gloo},
             "--ranks 4 given with --engine gloo, where each rank is a process; start it with "
             "`tessera_run --nproc-per-node 4`, or leave the engine out to run the ranks as "
             "threads"},
        Case{
            "MpiRanksAlone",
            {{"TESSERA_ENGINE", "mpi"}, {"TESSERA_RANKS", "3"}},
            kNoFlags,
            "TESSERA_RANKS=3 given with TESSERA_ENGINE=mpi, where each rank is a process; start it "
            "with `mpirun -n 3`, or leave the engine out to run the ranks as threads"}),
    name_of);

TEST(SlurmHostsTest, FirstHostIsFound) {
  const auto first = [](const char* list) { return read_first_host("LIST=", list); };
  EXPECT_EQ(first("node1"), "node1");
  EXPECT_EQ(first("node1,node2"), "node1");
  EXPECT_EQ(first("node[1-4]"), "node1");
  EXPECT_EQ(first("node[001-004,007],login"), "node001");
  EXPECT_EQ(first("node[7]"), "node7");
  EXPECT_EQ(first("node[3,5-6]"), "node3");
  EXPECT_EQ(first("gpu-[01-02]-ib"), "gpu-01-ib");
  EXPECT_EQ(first("rack[2-3]node[08-16]"), "rack2node08");
  EXPECT_EQ(first("[1-2]"), "1");
  EXPECT_EQ(first("a.b.example.org"), "a.b.example.org");
}

TEST(SlurmHostsTest, OtherListsAreRefused) {
  for (const char* list : {"", ",", ",node1", "node[", "node[1-2", "node]", "node[]", "node[-1]",
                           "node[,2]", "node[a-b]", "no de", "node[1][", "node\t", "[[1]]"}) {
    EXPECT_THAT([&] { return read_first_host("LIST=", list); },
                throws_invalid_argument(std::string("launch: LIST=") + list +
                                        " given; a list of hosts such as node[001-004,007] is "
                                        "expected"))
        << list;
  }
}

TEST(SlurmHostsTest, RefusalNamesTheVariable) {
  const auto variables = with(on_slurm(1, 4), {{"SLURM_JOB_NODELIST", "gpu["}});
  EXPECT_THAT([&] { return decide_launch(variables, kGloo, true); },
              throws_invalid_argument("launch: SLURM_JOB_NODELIST=gpu[ given; a list of hosts such "
                                      "as node[001-004,007] is expected"));
}

}  // namespace
}  // namespace tessera::detail
