#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/spelled_plan.h"
#include "support/random_layout.h"
#include "tessera/plan/redistribute_plan.h"

namespace tessera::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ExplainTest, SaysStepsBytesAgainstTheBoundMessagesPeakAndTheRejected) {
  EXPECT_EQ(planned("tp=2", "S0", "S1", {64, 64}).explain(),
            "redistribute [64,64][S(0)] on [tp=2] to [S(1)], 4 byte(s) per element\n"
            "chosen: collectives, 4.2 us by the cost model\n"
            "  1. all_to_all(tp, dim 0): [S(0)] -> [S(1)], 4.2 us\n"
            "received: at most 4.1 kB by a rank (bound 4.1 kB), 4.1 kB on average (bound 4.1 kB)\n"
            "messages: at most 1; peak memory: at most 24.6 kB, of which buffers 8.2 kB\n"
            "  rank 0: receives 4.1 kB (bound 4.1 kB), sends 4.1 kB, 1 message(s), peak 24.6 kB\n"
            "  rank 1: receives 4.1 kB (bound 4.1 kB), sends 4.1 kB, 1 message(s), peak 24.6 kB\n"
            "rejected: direct exchange, 4.2 us, receives 4.1 kB\n"
            "    1. exchange(tp): [S(0)] -> [S(1)], 4.2 us\n");
}

TEST(ExplainTest, SaysWhyAPlanReceivesMoreThanTheBound) {
  const PlanOptions messages_are_dear = {.cost = {1'000, 1'000'000, 1, 1}};
  EXPECT_EQ(
      planned("dp=2,tp=2", "S0,S0", "S1,S1", {8, 8}, messages_are_dear).explain(),
      "redistribute [8,8][S(0),S(0)] on [dp=2, tp=2] to [S(1),S(1)], 4 byte(s) per element\n"
      "chosen: collectives, 2.0 us by the cost model\n"
      "  1. all_gather(dp, tp, dim 0): [S(0),S(0)] -> [R,R], 2.0 us\n"
      "  2. slice: [R,R] -> [S(1),S(1)], 192 ps\n"
      "received: at most 192 B by a rank (bound 48 B), 192 B on average (bound 48 B)\n"
      "messages: at most 2; peak memory: at most 384 B, of which buffers 0 B\n"
      "  rank 0: receives 192 B (bound 48 B), sends 192 B, 2 message(s), peak 384 B\n"
      "  rank 1: receives 192 B (bound 48 B), sends 192 B, 2 message(s), peak 384 B\n"
      "  rank 2: receives 192 B (bound 48 B), sends 192 B, 2 message(s), peak 384 B\n"
      "  rank 3: receives 192 B (bound 48 B), sends 192 B, 2 message(s), peak 384 B\n"
      "above the bound by choice: the direct exchange would receive only 48 B but cost 3.0 us "
      "against 2.0 us, for 3 message(s) and 48 B to pack\n"
      "rejected: direct exchange, 3.0 us, receives 48 B\n"
      "    1. exchange(dp, tp): [S(0),S(0)] -> [S(1),S(1)], 3.0 us\n");
}

TEST(ExplainTest, SaysWhenNothingIsToDo) {
  EXPECT_EQ(planned("tp=2", "S0", "S0", {8}).explain(),
            "redistribute [8][S(0)] on [tp=2] to [S(0)], 4 byte(s) per element\n"
            "nothing to do: every rank already holds its part\n");
}

TEST(ExplainTest, NamesTheOtherMesh) {
  const auto plan = plan_redistribute(spelled("2", "S0", {8}), spelled("a=2,b=2", "S0,R", {8}));
  EXPECT_THAT(plan.explain(), HasSubstr("redistribute [8][S(0)] on [2] to [S(0),R] on [a=2, b=2], "
                                        "4 byte(s) per element\n"));
}

TEST(ExplainTest, ShowsAShardOrderThatIsNotLeftToRight) {
  const MeshShape mesh({2, 2}, {"dp", "tp"});
  const auto plan = plan_redistribute(Layout(mesh, {Shard(0), Shard(0)}, {8}),
                                      Layout(mesh, {Shard(0), Shard(0)}, {8}, {1, 0}));
  EXPECT_THAT(plan.explain(), HasSubstr("to [S(0),S(0)]{dim 0: tp,dp}, 4 byte(s)"));
}

/// Counts the lines that tell about one rank.
std::size_t rank_lines(const std::string& text) {
  std::size_t count = 0;
  for (auto at = text.find("\n  rank "); at != std::string::npos;
       at = text.find("\n  rank ", at + 1)) {
    ++count;
  }
  return count;
}

TEST(ExplainTest, OfMoreThanSixteenRanksShowsASample) {
  EXPECT_EQ(rank_lines(planned("16", "S0", "S1", {16, 16}).explain()), 16U);
  const std::string many = planned("17", "S0", "S1", {17, 17}).explain();
  EXPECT_EQ(rank_lines(many), 16U);
  EXPECT_THAT(many, HasSubstr("\n  ... (17 ranks looked at)\n"));
  EXPECT_EQ(rank_lines(planned("65", "S0", "S1", {65, 65}).explain()), 16U);
}

TEST(ExplainTest, SaysWhyAPlanReceivesMoreWhenTheBudgetLeavesNoChoice) {
  // The direct exchange would need 31 elements of buffers.
  const auto plan = planned("8,2", "S0,S0", "R,S0", {28}, {.staging_budget = 29 * 4});
  ASSERT_TRUE(plan.summary().above_bound);
  EXPECT_THAT(plan.explain(), HasSubstr("above the bound"));
}

TEST(ExplainTest, SaysNothingAboutExcessWhereTheBoundIsMet) {
  EXPECT_THAT(planned("4", "S0", "S1", {64, 64}).explain(), Not(HasSubstr("above the bound")));
}

TEST(ExplainTest, ShowsRounds) {
  const auto plan = planned("tp=2", "S0", "S1", {8, 8}, {.staging_budget = 64});
  EXPECT_THAT(plan.explain(), HasSubstr("[S(0)] -> [S(1)] in "));
}

TEST(ExplainJsonTest, IsOneObjectOnOneLine) {
  EXPECT_EQ(
      planned("tp=2", "S0", "S1", {4, 4}).explain_json(),
      R"({"from":"[4,4][S(0)] on [tp=2]","to":"[4,4][S(1)] on [tp=2]","element_size":4,)"
      R"("chosen":"collectives","cost_ps":3004800,)"
      R"("steps":[{"kind":"all_to_all","from":"[4,4][S(0)] on [tp=2]",)"
      R"("to":"[4,4][S(1)] on [tp=2]","mesh_dims":[0],"tensor_dim":0,"rounds":1,)"
      R"("cost_ps":3004800}],)"
      R"("received_bytes_max":16,"received_bytes_mean":16,"bound_bytes_max":16,)"
      R"("bound_bytes_mean":16,"messages_max":1,"peak_bytes_max":96,"all_ranks":true,)"
      R"("ranks":[{"rank":0,"received_bytes":16,"bound_bytes":16,"sent_bytes":16,"messages":1,)"
      R"("peak_bytes":96},{"rank":1,"received_bytes":16,"bound_bytes":16,"sent_bytes":16,)"
      R"("messages":1,"peak_bytes":96}],)"
      R"("rejected":[{"name":"direct exchange","cost_ps":3004800,"received_bytes":16,)"
      R"("steps":[{"kind":"exchange","from":"[4,4][S(0)] on [tp=2]",)"
      R"("to":"[4,4][S(1)] on [tp=2]","mesh_dims":[0],"tensor_dim":-1,"rounds":1,)"
      R"("cost_ps":3004800}]}]})");
}

/// Expects the numbers that a program would read to be those of the plan.
void expect_same(const nlohmann::json& json, const RedistributePlan& plan) {
  const PlanSummary ranks = plan.summary();
  EXPECT_EQ(json["from"], plan.from().to_string());
  EXPECT_EQ(json["to"], plan.to().to_string());
  EXPECT_EQ(json["element_size"], plan.options().element_size);
  EXPECT_EQ(json["chosen"], plan.name());
  EXPECT_EQ(json["cost_ps"], plan.cost_ps());
  EXPECT_EQ(json["received_bytes_max"], ranks.most_received_bytes);
  EXPECT_EQ(json["bound_bytes_max"], ranks.most_bound_bytes);
  EXPECT_EQ(json["bound_bytes_mean"], ranks.mean_bound_bytes);
  EXPECT_EQ(json["peak_bytes_max"], ranks.most_peak_bytes);
  EXPECT_EQ(json["messages_max"], ranks.most_messages);
  EXPECT_EQ(json["all_ranks"], ranks.complete);
  ASSERT_EQ(json["steps"].size(), plan.steps().size());
  for (std::size_t i = 0; i < plan.steps().size(); ++i) {
    EXPECT_EQ(json["steps"][i]["kind"], to_string(plan.steps()[i].kind));
    EXPECT_EQ(json["steps"][i]["mesh_dims"], plan.steps()[i].mesh_dims);
    EXPECT_EQ(json["steps"][i]["cost_ps"], plan.steps()[i].cost_ps);
  }
  ASSERT_EQ(json["ranks"].size(), ranks.ranks.size());
  for (std::size_t i = 0; i < ranks.ranks.size(); ++i) {
    EXPECT_EQ(json["ranks"][i]["rank"], ranks.ranks[i]);
    EXPECT_EQ(json["ranks"][i]["received_bytes"], ranks.parts[i]->traffic.received_bytes);
    EXPECT_EQ(json["ranks"][i]["bound_bytes"], ranks.parts[i]->bound_bytes);
  }
  EXPECT_EQ(json["rejected"].size(), plan.candidates().size() - 1);
}

TEST(ExplainJsonTest, IsWellFormedAndSaysWhatThePlanSays) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const MeshShape mesh = random_mesh(random, {.max_ranks = 70, .rank_maps = true});
    const Shape shape = random_shape(random);
    const PlacementOptions placements{.max_split_factor = 3, .partial_ops = {ReduceOp::max}};
    const Layout from = random_layout_on(random, mesh, shape, placements);
    const Layout to =
        random_layout_on(random, random.one_in(3) ? random_mesh(random) : mesh, shape, placements);
    const auto plan = plan_redistribute(from, to);
    const std::string text = plan.explain_json();
    SCOPED_TRACE(concat("seed ", seed, ": ", text));
    ASSERT_TRUE(nlohmann::json::accept(text));
    expect_same(nlohmann::json::parse(text), plan);
  }
}

}  // namespace
}  // namespace tessera::test
