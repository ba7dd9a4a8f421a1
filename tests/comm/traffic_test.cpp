#include "tessera/comm/traffic.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <torch/csrc/autograd/custom_function.h>

#include "base/throws_invalid_argument.h"
#include "comm/collectives_inputs.h"
#include "tessera/base/concat.h"
#include "tessera/comm/recorder.h"

namespace tessera::test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using namespace std::chrono_literals;
using Json = nlohmann::json;

/// What one call is counted as.
struct Counted {
  std::string name;
  std::int64_t sent = 0;
  std::int64_t received = 0;
};

/// Expects one record of a call, for a group of three.
void expect_counted(const World& world, const Counted& expected,
                    const std::function<void(const Group&)>& call) {
  SCOPED_TRACE(expected.name);
  CommDebugMode traffic;
  {
    const auto scope = traffic.record();
    call(world.group());
  }
  ASSERT_EQ(traffic.total_count(), 1);
  const CommRecord& record = traffic.records().front();
  EXPECT_EQ(record.name, expected.name);
  EXPECT_EQ(record.group, "world");
  EXPECT_EQ(record.cause, "");
  EXPECT_EQ(record.rank, world.rank());
  EXPECT_EQ(record.sent_bytes, expected.sent);
  EXPECT_EQ(record.received_bytes, expected.received);
  EXPECT_GT(record.begin, 0ns);
  EXPECT_GT(record.duration, 0ns);
}

TEST(TrafficTest, EveryCollectiveIsCountedOnceByItsName) {
  run_ranks(
      3,
      [](World& world) {
        const bool is_root = world.rank() == 0;
        const std::int64_t me = world.rank();
        const at::Tensor x = at::ones({6, 2});  // 48 bytes
        expect_counted(world, {"all_reduce", 64, 64},
                       [&](const Group& group) { (void)all_reduce(x, ReduceOp::sum, group); });
        expect_counted(world, {"all_gather_into_tensor", 96, 96},
                       [&](const Group& group) { (void)all_gather(x, 1, group); });
        expect_counted(world, {"reduce_scatter_tensor", 32, 32}, [&](const Group& group) {
          (void)reduce_scatter(x, 0, ReduceOp::max, group);
        });
        // 1, 2 and 3 rows of 8 bytes: two others get them, and have the rest of six.
        expect_counted(world, {"all_gather_into_tensor", 16 * (me + 1), 48 - 8 * (me + 1)},
                       [&](const Group& group) {
                         (void)all_gather(at::ones({me + 1, 2}), 0, group);
                       });
        // Pieces of 3, 3 and 0 rows of 8 bytes.
        const std::int64_t own = me == 2 ? 0 : 24;
        expect_counted(world, {"reduce_scatter_tensor", 48 - own, 2 * own},
                       [&](const Group& group) {
                         (void)reduce_scatter(x, 0, ReduceOp::sum, group, {.sizes = {3, 3, 0}});
                       });
        expect_counted(world, {"all_to_all_single", 32, 32},
                       [&](const Group& group) { (void)all_to_all(x, {}, {}, group); });
        expect_counted(world, {"all_to_all_single", me == 0 ? 0 : 48, me == 0 ? 96 : 0},
                       [&](const Group& group) {
                         (void)all_to_all(x, {}, {6, 0, 0}, group);
                       });
        expect_counted(world, {"broadcast", is_root ? 96 : 0, is_root ? 0 : 48},
                       [&](const Group& group) { (void)broadcast(x, 0, group); });
        expect_counted(world, {"scatter", is_root ? 32 : 0, is_root ? 0 : 16},
                       [&](const Group& group) { (void)scatter(x, 0, 0, group); });
        expect_counted(world, {"gather", is_root ? 0 : 48, is_root ? 96 : 0},
                       [&](const Group& group) { (void)gather(x, 0, 0, group); });
        expect_counted(world, {"all_to_all_single", me == 0 ? 48 : 0, me == 2 ? 48 : 0},
                       [&](const Group& group) {
                         (void)permute(x, {{0, 2}, {1, 1}}, group);
                       });
        expect_counted(world, {"barrier", 0, 0}, [&](const Group& group) { barrier(group); });
        expect_counted(world, {"all_gather_object", 10, 10},
                       [&](const Group& group) { (void)all_gather_object("12345", group); });
        expect_counted(
            world, {"all_gather_object", me == 0 ? 10 : 0, me == 0 ? 0 : 5},
            [&](const Group& group) { (void)all_gather_object(me == 0 ? "12345" : "", group); });
        expect_counted(
            world, {"all_reduce_coalesced", 64 + 64 + 32, 64 + 64 + 32}, [&](const Group& group) {
              (void)all_reduce(Tensors{x, x, at::ones({3}, at::kLong)}, ReduceOp::sum, group);
            });
        expect_counted(world, {"all_gather_into_tensor_coalesced", 192, 192},
                       [&](const Group& group) {
                         (void)all_gather(Tensors{x, x}, 0, group);
                       });
        expect_counted(world, {"reduce_scatter_tensor_coalesced", 64, 64}, [&](const Group& group) {
          (void)reduce_scatter(Tensors{x, x}, 0, ReduceOp::sum, group);
        });
        if (me == 0) {
          expect_counted(world, {"send", 48, 0}, [&](const Group& group) { send(x, 1, group); });
        } else if (me == 1) {
          expect_counted(world, {"recv", 0, 48},
                         [&](const Group& group) { (void)recv(x, 0, group); });
        }
        Tensors pieces;
        if (is_root) pieces = {x, x, x};
        expect_counted(world, {"scatter", is_root ? 96 : 0, is_root ? 0 : 48},
                       [&](const Group& group) { (void)scatter(pieces, 0, group); });
      },
      test_options());
}

TEST(TrafficTest, BytesAreThoseThatTravel) {
  run_ranks(
      3,
      [](World& world) {
        // In float32, as bytes, as pairs, and gathered.
        expect_counted(world, {"all_reduce", 16, 16}, [](const Group& group) {
          (void)all_reduce(at::ones({3}, at::kBFloat16), ReduceOp::sum, group);
        });
        expect_counted(world, {"all_reduce", 4, 4}, [](const Group& group) {
          (void)all_reduce(at::ones({3}, at::kBool), ReduceOp::sum, group);
        });
        expect_counted(world, {"all_reduce", 32, 32}, [](const Group& group) {
          (void)all_reduce(at::ones({3}, at::kComplexFloat), ReduceOp::sum, group);
        });
        expect_counted(world, {"all_reduce", 48, 48}, [](const Group& group) {
          (void)all_reduce(at::ones({3}, at::kComplexFloat), ReduceOp::product, group);
        });
        expect_counted(world, {"reduce_scatter_tensor", 16, 16}, [](const Group& group) {
          (void)reduce_scatter(at::ones({3}, at::kComplexFloat), 0, ReduceOp::product, group);
        });
        expect_counted(world, {"all_gather_into_tensor", 12, 12}, [](const Group& group) {
          (void)all_gather(at::ones({3}, at::kBFloat16), 0, group);
        });
      },
      test_options());
}

TEST(TrafficTest, CallsMadeWhileAnExceptionIsOnItsWayMoveAsMuch) {
  run_ranks(
      3,
      [](World& world) {
        struct Farewell {
          const World& world;
          ~Farewell() { (void)all_reduce(at::ones({6, 2}), ReduceOp::sum, world.group()); }
        };
        expect_counted(world, {"all_reduce", 64, 64}, [&](const Group&) {
          try {
            const Farewell farewell{world};
            throw std::runtime_error("on its way");
          } catch (const std::runtime_error&) {
          }
        });
      },
      test_options());
}

TEST(TrafficTest, NothingMovesButEverythingCounts) {
  run_ranks(1, [](World& world) {
    for (const auto& call : std::vector<std::function<void(const Group&)>>{
             [](const Group& group) { (void)all_reduce(at::ones({3}), ReduceOp::sum, group); },
             [](const Group& group) {
               (void)all_reduce(at::ones({3}), ReduceOp::product, group);
             }}) {
      expect_counted(world, {"all_reduce", 0, 0}, call);
    }
    const at::Tensor x = at::ones({3});
    expect_counted(world, {"all_gather_into_tensor"},
                   [&](const Group& group) { (void)all_gather(x, 0, group); });
    expect_counted(world, {"reduce_scatter_tensor"},
                   [&](const Group& group) { (void)reduce_scatter(x, 0, ReduceOp::sum, group); });
    expect_counted(world, {"all_to_all_single"},
                   [&](const Group& group) { (void)all_to_all(x, {}, {}, group); });
    expect_counted(world, {"broadcast"}, [&](const Group& group) { (void)broadcast(x, 0, group); });
    expect_counted(world, {"scatter"}, [&](const Group& group) { (void)scatter(x, 0, 0, group); });
    expect_counted(world, {"gather"}, [&](const Group& group) { (void)gather(x, 0, 0, group); });
    expect_counted(world, {"all_to_all_single"}, [&](const Group& group) {
      (void)permute(x, {{0, 0}}, group);
    });
    expect_counted(world, {"barrier"}, [&](const Group& group) { barrier(group); });
    expect_counted(world, {"all_gather_object"},
                   [&](const Group& group) { (void)all_gather_object("x", group); });
  });
  run_ranks(2, [](World& world) {
    expect_counted(world, {"all_reduce"}, [](const Group& group) {
      (void)all_reduce(at::ones({0}), ReduceOp::sum, group);
    });
  });
}

TEST(TrafficTest, ScopesNestAndAddUp) {
  run_ranks(2, [](World& world) {
    const auto sum = [&] { (void)all_reduce(at::ones({2}), ReduceOp::sum, world.group()); };
    CommDebugMode outer;
    CommDebugMode inner;
    sum();
    {
      const auto outer_scope = outer.record();
      sum();
      {
        const auto inner_scope = inner.record();
        sum();
        barrier(world.group());
        // The same again: counts once.
        const auto again = inner.record();
        sum();
      }
      sum();
    }
    sum();
    EXPECT_EQ(outer.total_count(), 5);
    EXPECT_EQ(inner.total_count(), 3);
    EXPECT_EQ(inner.count("all_reduce"), 2);
    EXPECT_EQ(inner.count("barrier"), 1);
    EXPECT_EQ(inner.count("broadcast"), 0);
    EXPECT_THAT(inner.counts(), ElementsAre(Pair("all_reduce", 2), Pair("barrier", 1)));
    EXPECT_EQ(outer.sent_bytes(), 4 * 8);
    EXPECT_EQ(outer.received_bytes(), 4 * 8);
    {
      const auto more = inner.record();
      sum();
    }
    EXPECT_EQ(inner.total_count(), 4);
    inner.clear();
    EXPECT_EQ(inner.total_count(), 0);
    EXPECT_EQ(outer.total_count(), 5);
  });
}

TEST(TrafficTest, CausesComeFromTheOutermostScope) {
  run_ranks(2, [](World& world) {
    CommDebugMode traffic;
    const auto scope = traffic.record();
    {
      const detail::CauseScope cause("redistribute");
      const detail::CauseScope detail_cause("a part of it");
      barrier(world.group());
    }
    barrier(world.group());
    const at::Tensor x = at::ones({2}).requires_grad_();
    all_gather(x, 0, world.group()).sum().backward();
    ASSERT_EQ(traffic.total_count(), 4);
    EXPECT_EQ(traffic.records()[0].cause, "redistribute");
    EXPECT_EQ(traffic.records()[1].cause, "");
    EXPECT_EQ(traffic.records()[2].cause, "");
    EXPECT_EQ(traffic.records()[3].name, "reduce_scatter_tensor");
    EXPECT_EQ(traffic.records()[3].cause, "backward of all_gather_into_tensor");
  });
}

/// Runs a backward pass of its own inside of its backward pass, so many deep, and sums up in the
/// innermost one.
struct Nested : torch::autograd::Function<Nested> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            std::int64_t depth) {
    context->saved_data["depth"] = depth;
    return x.clone();
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    const std::int64_t depth = context->saved_data["depth"].toInt();
    const at::AutoGradMode with_history(true);
    const at::Tensor x = at::ones({2}).requires_grad_();
    (depth == 0 ? all_reduce(x, ReduceOp::sum, World::current().group()) : apply(x, depth - 1))
        .sum()
        .backward();
    return {gradients[0], at::Tensor()};
  }
};

TEST(TrafficTest, BackwardPassesCountOnTheThreadThatStartsThem) {
  run_ranks(2, [](World& world) {
    CommDebugMode outside;
    const auto scope = outside.record();
    const at::Tensor x = at::ones({2}).requires_grad_();
    const at::Tensor y = all_gather(x, 0, world.group()).sum();
    CommDebugMode passes;
    {
      const auto inner = passes.record();
      y.backward();
    }
    EXPECT_THAT(passes.counts(), ElementsAre(Pair("reduce_scatter_tensor", 1)));
    EXPECT_EQ(passes.records()[0].rank, world.rank());
    EXPECT_EQ(outside.total_count(), 2);
    for (const std::int64_t depth : {0, 3}) {
      passes.clear();
      const auto inner = passes.record();
      Nested::apply(at::ones({2}).requires_grad_(), depth).sum().backward();
      EXPECT_THAT(passes.counts(), ElementsAre(Pair("all_reduce", 2))) << depth;
    }
  });
}

TEST(TrafficTest, EveryThreadCountsItsOwn) {
  run_ranks(2, [](World& world) {
    CommDebugMode own;
    const auto scope = own.record();
    CommDebugMode others;
    // One thread of a rank communicates at a time.
    std::thread([&] {
      barrier(world.group());
      const auto others_scope = others.record();
      (void)all_reduce(at::ones({2}), ReduceOp::sum, world.group());
    }).join();
    barrier(world.group());
    EXPECT_THAT(own.counts(), ElementsAre(Pair("barrier", 1)));
    EXPECT_THAT(others.counts(), ElementsAre(Pair("all_reduce", 1)));
  });
}

TEST(TrafficTest, AsynchronousCallsLastUntilTheyAreWaitedFor) {
  run_ranks(2, [](World& world) {
    CommDebugMode traffic;
    CommDebugMode cleared;
    at::Tensor y;
    {
      const auto scope = traffic.record();
      const auto other = cleared.record();
      y = all_reduce(at::ones({2}), ReduceOp::sum, world.group(), {.async_op = true});
    }
    ASSERT_EQ(traffic.total_count(), 1);
    EXPECT_EQ(traffic.records()[0].duration, 0ns);
    cleared.clear();
    (void)wait(y);
    EXPECT_GT(traffic.records()[0].duration, 0ns);
    EXPECT_EQ(cleared.total_count(), 0);
  });
}

TEST(TrafficTest, RecordsOfAllRanksAreGathered) {
  run_ranks(3, [](World& world) {
    CommDebugMode traffic;
    const auto scope = traffic.record();
    for (std::int64_t i = 0; i < 2; ++i) {
      (void)all_gather(at::ones({world.rank()}), 0, world.group());
    }
    const auto pair = world.group({2, 1, 0}, "turned");
    const auto all = traffic.gathered(pair);
    ASSERT_EQ(all.size(), 6U);
    EXPECT_EQ(traffic.total_count(), 2) << "gathering is not recorded";
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].rank, static_cast<std::int64_t>(i / 2));
      EXPECT_EQ(all[i].name, "all_gather_into_tensor");
      EXPECT_EQ(all[i].group, "world");
      EXPECT_EQ(all[i].received_bytes, 4 * (3 - all[i].rank));
    }
    const auto& own = traffic.records();
    EXPECT_EQ(all[static_cast<std::size_t>(2 * world.rank())].begin, own[0].begin);
    EXPECT_EQ(all[static_cast<std::size_t>(2 * world.rank() + 1)].duration, own[1].duration);
  });
}

std::vector<CommRecord> some_records() {
  return {{"all_reduce", "dp", "", 0, 1500, 1500, 1us, 250us},
          {"all_gather_into_tensor", "tp", "redistribute [S(0)] -> [R]", 0, 64, 128, 300us, 2ms},
          {"all_reduce", "dp", "", 1, 1500, 1500, 2us, 250us},
          {"all_reduce", "world", "", 1, 0, 0, 260us, 500ns}};
}

TEST(TrafficTextTest, TablesAddUpWhatIsAlike) {
  EXPECT_EQ(CommDebugMode::table(some_records()),
            "collective              group  cause                       count    sent  received  "
            "  time\n"
            "all_reduce              dp                                     2  3.0 kB    3.0 kB  "
            "500 us\n"
            "all_gather_into_tensor  tp     redistribute [S(0)] -> [R]      1    64 B     128 B  "
            "2.0 ms\n"
            "all_reduce              world                                  1     0 B       0 B  "
            "500 ns\n"
            "total                                                          4  3.1 kB    3.1 kB  "
            "2.5 ms\n"
            "\n"
            "rank  count    sent  received    time  calls\n"
            "   0      2  1.6 kB    1.6 kB  2.2 ms  1 all_reduce, 1 all_gather_into_tensor\n"
            "   1      2  1.5 kB    1.5 kB  250 us  2 all_reduce\n");
  EXPECT_EQ(CommDebugMode().table(),
            "collective  group  cause  count  sent  received  time\n"
            "total                         0   0 B       0 B  0 ps\n");
}

TEST(TrafficTextTest, TablesOfOneRankDoNotListIt) {
  EXPECT_EQ(CommDebugMode::table({{"barrier", "dp", "", 3, 0, 0, 1us, 250us}}),
            "collective  group  cause  count  sent  received    time\n"
            "barrier     dp                1   0 B       0 B  250 us\n"
            "total                         1   0 B       0 B  250 us\n");
}

TEST(TrafficTextTest, ManyRanksHaveALineEach) {
  std::vector<CommRecord> records;
  // In no order of ranks.
  for (std::int64_t i = 0; i < 64; ++i) {
    records.push_back({"send", "world", "", i * 37 % 64, 1000, 0, 1us, 2us});
  }
  const std::string table = CommDebugMode::table(records);
  const std::string ranks = table.substr(table.find("\n\n") + 2);
  std::istringstream lines(ranks);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "rank  count    sent  received    time  calls");
  for (std::int64_t rank = 0; rank < 64; ++rank) {
    std::getline(lines, line);
    EXPECT_EQ(line,
              concat(rank < 10 ? "   " : "  ", rank, "      1  1.0 kB       0 B  2.0 us  1 send"));
  }
  EXPECT_FALSE(std::getline(lines, line)) << line;
}

TEST(TrafficTextTest, JsonHasTheSameNumbers) {
  EXPECT_EQ(CommDebugMode::json(some_records()),
            R"({"collectives":[)"
            R"({"name":"all_reduce","group":"dp","cause":"","count":2,"sent_bytes":3000,)"
            R"("received_bytes":3000,"time_ns":500000},)"
            R"({"name":"all_gather_into_tensor","group":"tp","cause":"redistribute [S(0)] -> [R]",)"
            R"("count":1,"sent_bytes":64,"received_bytes":128,"time_ns":2000000},)"
            R"({"name":"all_reduce","group":"world","cause":"","count":1,"sent_bytes":0,)"
            R"("received_bytes":0,"time_ns":500}],)"
            R"("total":{"count":4,"sent_bytes":3064,"received_bytes":3128,"time_ns":2500500},)"
            R"("ranks":[{"rank":0,"count":2,"sent_bytes":1564,"received_bytes":1628,)"
            R"("time_ns":2250000,"collectives":[)"
            R"({"name":"all_reduce","group":"dp","cause":"","count":1,"sent_bytes":1500,)"
            R"("received_bytes":1500,"time_ns":250000},)"
            R"({"name":"all_gather_into_tensor","group":"tp","cause":"redistribute [S(0)] -> [R]",)"
            R"("count":1,"sent_bytes":64,"received_bytes":128,"time_ns":2000000}]},)"
            R"({"rank":1,"count":2,"sent_bytes":1500,"received_bytes":1500,"time_ns":250500,)"
            R"("collectives":[{"name":"all_reduce","group":"dp","cause":"","count":1,)"
            R"("sent_bytes":1500,"received_bytes":1500,"time_ns":250000},)"
            R"({"name":"all_reduce","group":"world","cause":"","count":1,"sent_bytes":0,)"
            R"("received_bytes":0,"time_ns":500}]}]})");
  EXPECT_EQ(Json::parse(CommDebugMode().json())["total"]["count"], 0);
  EXPECT_EQ(Json::parse(CommDebugMode().json())["ranks"], Json::array());
}

TEST(TrafficTextTest, TracesHaveAProcessPerRank) {
  auto records = some_records();
  // Overlaps with the one before: a track of its own.
  records.push_back({"broadcast", "world", "say \"hi\"", 0, 8, 8, 400us, 100us});
  records.push_back({"barrier", "world", "", 0, 0, 0, 2400us, 1us});
  const Json trace = Json::parse(chrome_trace(records));
  const Json& events = trace["traceEvents"];
  ASSERT_EQ(events.size(), 2U + records.size());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(events[rank]["ph"], "M");
    EXPECT_EQ(events[rank]["name"], "process_name");
    EXPECT_EQ(events[rank]["pid"], rank);
    EXPECT_EQ(events[rank]["args"]["name"], concat("rank ", rank));
  }
  const std::vector<std::int64_t> tracks = {0, 0, 0, 0, 1, 0};
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Json& event = events[2 + i];
    EXPECT_EQ(event["ph"], "X");
    EXPECT_EQ(event["name"], records[i].name);
    EXPECT_EQ(event["pid"], records[i].rank);
    EXPECT_EQ(event["tid"], tracks[i]);
    EXPECT_EQ(event["args"]["cause"], records[i].cause);
    EXPECT_EQ(event["args"]["group"], records[i].group);
    EXPECT_EQ(event["args"]["sent_bytes"], records[i].sent_bytes);
    EXPECT_EQ(event["args"]["received_bytes"], records[i].received_bytes);
    EXPECT_DOUBLE_EQ(event["ts"], static_cast<double>(records[i].begin.count()) / 1000);
    EXPECT_DOUBLE_EQ(event["dur"], static_cast<double>(records[i].duration.count()) / 1000);
  }
  EXPECT_EQ(Json::parse(chrome_trace({}))["traceEvents"].size(), 0U);
}

TEST(TrafficTextTest, TracesAreWrittenToFiles) {
  const auto folder =
      std::filesystem::temp_directory_path() / concat("tessera_traffic_test_", ::getpid());
  std::filesystem::create_directory(folder);
  const std::string path = folder / "trace.json";
  write_chrome_trace(path, some_records());
  std::ifstream file(path);
  EXPECT_EQ(Json::parse(file), Json::parse(chrome_trace(some_records())));
  std::filesystem::remove_all(folder);
  EXPECT_THAT([&] { write_chrome_trace(path, {}); },
              throws_invalid_argument("write_chrome_trace: path \"" + path +
                                      "\" given, which cannot be written; name a file in a folder "
                                      "that exists and is writable"));
}

}  // namespace
}  // namespace tessera::test
