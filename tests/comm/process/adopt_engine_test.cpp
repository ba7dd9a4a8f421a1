#include <chrono>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/process/gloo_ranks.h"
#include "comm/process/process_groups.h"
#include "comm/process/sample_cases.h"
#include "comm/process/transport_cases.h"
#include "tessera/base/concat.h"
#include "tessera/comm/c10d.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/world_state.h"

// Adopted process groups whose backend Tessera knows nothing of, as NCCL's would be.

namespace tessera::test {
namespace {

using Ranks = std::vector<std::int64_t>;
using testing::AllOf;
using testing::HasSubstr;

TEST(AdoptEngineTest, AnUnknownBackendCanDoEverything) {
  expect_success(with_process_groups(
      3,
      [](const GroupPtr& all, const std::string&) {
        World world = adopt(all, {}, patient_options());
        EXPECT_STREQ(world.engine(), "relay");
        check_moves(world.group());
        check_reductions(world.group());
        check_messages(world.group());
        check_async(world.group());
        check_records(world.group());
        check_gradients_and_traffic(world);
      },
      GroupBackend::relay));
}

/// Makes process groups of the ranks it is asked for, and keeps in mind which these were.
GroupMaker remembering_maker(const std::string& file, std::int64_t rank, std::vector<Ranks>& made) {
  return [&made, file, rank](const Ranks& ranks) {
    made.push_back(ranks);
    const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return make_process_group(file, concat("made of ", joined(ranks, ",")), static_cast<int>(place),
                              static_cast<int>(ranks.size()), GroupBackend::relay);
  };
}

TEST(AdoptEngineTest, GroupsAreMadeWhenTheyAreNeeded) {
  expect_success(with_process_groups(
      4,
      [](const GroupPtr& all, const std::string& file) {
        std::vector<Ranks> made;
        World world =
            adopt(all, {}, patient_options(), remembering_maker(file, all->getRank(), made));
        const detail::CurrentWorld current(world.state().shared_from_this());
        EXPECT_TRUE(made.empty());
        const DeviceMesh mesh("cpu", MeshShape({2, 2}, {"dp", "tp"}), world);
        for (int times = 0; times < 2; ++times) {
          const auto sum =
              all_reduce(at::full({3}, world.rank(), at::kLong), ReduceOp::sum, mesh["tp"]);
          EXPECT_TRUE(sum.eq(world.rank() < 2 ? 1 : 5).all().item<bool>());
        }
        EXPECT_THAT(made, testing::ElementsAre(world.rank() < 2 ? Ranks{0, 1} : Ranks{2, 3}));
        check_redistributions(world, 1900, 120);
        check_collectives(world, 1900, 30);
        for (const auto& ranks : made) {
          EXPECT_THAT(ranks,
                      AllOf(testing::Contains(world.rank()), testing::SizeIs(testing::Gt(1))));
        }
        EXPECT_EQ(std::set<Ranks>(made.begin(), made.end()).size(), made.size());
        expect_halves_that_differ_are_found(world);
      },
      GroupBackend::relay));
}

TEST(AdoptEngineTest, AMakerThatMakesSomethingElseIsRefused) {
  expect_success(with_process_groups(
      2,
      [](const GroupPtr& all, const std::string&) {
        const World world = adopt(all, {}, patient_options(), [&](const Ranks&) { return all; });
        const Group swapped = world.group({1, 0});
        try {
          barrier(swapped);
          ADD_FAILURE() << "a process group of other ranks was taken";
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr("give the ranks in the group's order"));
        }
        barrier(world.group());
      },
      GroupBackend::relay));
}

TEST(AdoptEngineTest, MismatchesAreFoundOnAllRanks) {
  expect_success(with_process_groups(
      3,
      [](const GroupPtr& all, const std::string&) {
        const World world = adopt(all, {}, patient_options());
        const auto expect_mismatch = [&](const std::function<void()>& call, const char* words) {
          try {
            call();
            ADD_FAILURE() << "the mismatch was not found: " << words;
          } catch (const CommError& error) {
            EXPECT_THAT(error.what(), HasSubstr(words));
          }
        };
        const auto length = 4 + world.rank() / 2;
        const auto reduce = [&] {
          (void)all_reduce(at::full({length}, 1, at::kFloat), ReduceOp::sum, world.group());
        };
        expect_mismatch(reduce,
                        "the ranks do not agree: rank 0 calls all_reduce(float32[4] sum), rank 2 "
                        "calls all_reduce(float32[5] sum)");
        expect_mismatch([&] { barrier(world.group()); },
                        "the group cannot be used any more since it failed");
        // The engine has not been harmed.
        barrier(adopt(all, {}, patient_options()).group());
      },
      GroupBackend::relay));
}

TEST(AdoptEngineTest, WrongArgumentsOfARedistributionAreToldToAll) {
  expect_success(with_process_groups(
      3,
      [](const GroupPtr& all, const std::string&) {
        World world = adopt(all, {}, patient_options());
        const detail::CurrentWorld current(world.state().shared_from_this());
        expect_wrong_argument_is_told(world);
      },
      GroupBackend::relay));
}

TEST(AdoptEngineTest, AMissingRankIsNamedWhenTheTimeIsUp) {
  expect_success(with_process_groups(
      3,
      [](const GroupPtr& all, const std::string& file) {
        const World world = adopt(all, {}, short_options());
        const auto signs = open_signs(file);
        if (world.rank() == 2) {
          // Does not come, and is there until the others have noticed: one by the time limit, and the
          // other by that, or because the one has closed its connections.
          signs->wait({"0", "1"}, std::chrono::seconds(90));
          EXPECT_THAT((std::vector{signs->get_to_str("0"), signs->get_to_str("1")}),
                      testing::Contains(HasSubstr("; the time limit is 2000 ms")));
          return;
        }
        std::string words = "nothing";
        try {
          (void)all_reduce(at::full({4}, 1, at::kFloat), ReduceOp::sum, world.group());
        } catch (const CommError& error) {
          words = error.what();
        }
        EXPECT_THAT(words,
                    AllOf(HasSubstr("all_reduce on group world, rank "),
                          HasSubstr("rank 2 did not come (process "), HasSubstr(" is running)"),
                          HasSubstr(", in all_reduce(float32[4] sum)")));
        signs->set(std::to_string(world.rank()), words);
      },
      GroupBackend::relay));
}

}  // namespace
}  // namespace tessera::test
