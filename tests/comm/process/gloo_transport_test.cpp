#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sched.h>

#include "comm/process/announced_cases.h"
#include "comm/process/gloo_ranks.h"
#include "comm/process/transport_cases.h"

namespace tessera::test {
namespace {

TEST(GlooTransportTest, MovesReducesAndComparesOnOneToFourRanks) {
  for (const std::int64_t size : {1, 2, 3, 4}) {
    SCOPED_TRACE(size);
    run_gloo(size, [](World& world) {
      const Group group = world.group();
      EXPECT_STREQ(group.engine(), "gloo");
      check_moves(group);
      check_reductions(group);
      check_messages(group);
      check_async(group);
      check_records(group);
    });
  }
}

TEST(GlooTransportTest, AnnouncedOperationsMoveWhatIsSmallAndWhatIsLarge) {
  for (const std::int64_t size : {2, 3}) {
    SCOPED_TRACE(size);
    run_gloo(size, [](World& world) { check_announced(world.group()); });
  }
}

TEST(GlooTransportTest, GroupsOfSomeRanksNumberTheirMembersInTheirOrder) {
  run_gloo(4, [](World& world) {
    if (world.rank() != 1) {
      const Group three = world.group({3, 0, 2}, "three");
      check_records(three);
      check_messages(three);
    }
    if (world.rank() % 2 == 1) check_async(world.group({3, 1}));
    check_async(world.group({world.rank()}));
    check_records(world.group());
  });
}

TEST(GlooTransportTest, GloosReadersDoNotTakeTheRanksPlaces) {
  run_gloo(2, [](World& world) {
    check_records(world.group());
    int readers = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::ifstream(thread.path() / "comm") >> name;
      if (name != "gloo_tcp_loop") continue;
      ++readers;
      EXPECT_EQ(sched_getscheduler(std::stoi(thread.path().filename())), SCHED_BATCH);
    }
    EXPECT_GE(readers, 1) << "gloo's threads have other names now";
  });
}

}  // namespace
}  // namespace tessera::test
