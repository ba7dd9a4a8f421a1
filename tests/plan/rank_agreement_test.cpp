#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plan/spelled_plan.h"
#include "support/random_layout.h"
#include "tessera/plan/step.h"

// Each rank computes its own part of a step alone. On meshes far beyond what can be simulated,
// sampled ranks and their peers must still describe the same messages.
namespace tessera::test {
namespace {

constexpr std::int64_t kMostPeers = 12;

/// What both sides of a message must agree on: the sizes of its boxes, in packing order.
std::string shape_of(const RankStep& own, const Message& message) {
  std::vector<std::string> boxes;
  for (std::size_t i = 0; i < message.box_count; ++i) {
    std::vector<std::int64_t> sizes;
    for (const auto& extent : own.box(message, i)) sizes.push_back(extent.size);
    boxes.push_back(joined(sizes, "x"));
  }
  return concat(message.numel, " elements in ", joined(boxes, " + "));
}

/// Returns the shapes of all messages of a list that come from or go to `peer`.
std::vector<std::string> shapes_with(const RankStep& own, const std::vector<Message>& messages,
                                     std::int64_t peer) {
  std::vector<std::string> shapes;
  for (const auto& message : messages) {
    if (message.peer == peer) shapes.push_back(shape_of(own, message));
  }
  return shapes;
}

/// Takes some of the messages: all of them while they are few.
std::vector<Message> sampled(const std::vector<Message>& messages) {
  std::vector<Message> sample;
  const std::size_t step = messages.size() / kMostPeers + 1;
  for (std::size_t i = 0; i < messages.size(); i += step) sample.push_back(messages[i]);
  return sample;
}

/// Expects that what `rank` sends is what its peers receive, and the other way round. Returns how
/// many messages were compared.
std::int64_t expect_peers_agree(const Step& step, std::int64_t rank) {
  SCOPED_TRACE(concat("rank ", rank));
  const RankStep own = rank_step(step, rank);
  std::int64_t compared = 0;
  for (const bool sending : {true, false}) {
    for (const auto& message : sampled(sending ? own.sends : own.receives)) {
      const RankStep peer = rank_step(step, message.peer);
      const auto answer = shapes_with(peer, sending ? peer.receives : peer.sends, rank);
      EXPECT_EQ(answer, std::vector{shape_of(own, message)})
          << (sending ? "sent to " : "received from ") << message.peer;
      ++compared;
    }
  }
  return compared;
}

std::int64_t expect_sample_agrees(const Layout& from, const Layout& to) {
  const Step step = exchange_step(from, to);
  std::int64_t compared = 0;
  for (const auto* layout : {&from, &to}) {
    const std::int64_t last = layout->mesh().num_ranks() - 1;
    for (const auto position : {std::int64_t{0}, last / 3, last / 2 + 1, last - 1, last}) {
      compared += expect_peers_agree(step, layout->mesh().rank_at(position));
    }
  }
  return compared;
}

TEST(RankAgreementTest, TransposedOn128x128) {
  const Shape shape = {1 << 14, 1 << 14};
  EXPECT_GT(
      expect_sample_agrees(spelled("128,128", "S0,S1", shape), spelled("128,128", "S1,S0", shape)),
      10);
}

TEST(RankAgreementTest, UnevenOn128x128) {
  const Shape shape = {1000, 1013};
  EXPECT_GT(
      expect_sample_agrees(spelled("128,128", "S0,S1", shape), spelled("128,128", "S1,S1", shape)),
      50);
}

TEST(RankAgreementTest, AnotherShardDimOn16384) {
  const Shape shape = {1 << 15, 1 << 15};
  EXPECT_GT(expect_sample_agrees(spelled("16384", "S0", shape), spelled("16384", "S1", shape)),
            100);
}

TEST(RankAgreementTest, StridedAndReplicatedOnFourMeshDims) {
  const Shape shape = {97, 61, 5};
  EXPECT_GT(expect_sample_agrees(spelled("8,4,4,8", "SS(0,3),R,S1,S0", shape),
                                 spelled("8,4,4,8", "R,SS(1,2),S0,S0", shape)),
            50);
}

TEST(RankAgreementTest, ContributionsAndReplicasOnFourMeshDims) {
  const Shape shape = {97, 61, 5};
  EXPECT_GT(expect_sample_agrees(spelled("8,4,4,8", "P,R,S1,S0", shape),
                                 spelled("8,4,4,8", "S0,SS(1,2),R,P", shape)),
            50);
}

TEST(RankAgreementTest, FromAThousandRanksTo777Others) {
  const Shape shape = {1009, 613};
  std::vector<std::int64_t> ranks(777);
  std::iota(ranks.begin(), ranks.end(), std::int64_t{400});
  std::reverse(ranks.begin(), ranks.end());
  const Layout to(MeshShape({21, 37}, {}, ranks), {Shard(0), Shard(1)}, shape);
  EXPECT_GT(expect_sample_agrees(spelled("1000", "S0", shape), to), 50);
  EXPECT_GT(expect_sample_agrees(spelled("50,20", "S1,R", shape), to), 20);
}

TEST(RankAgreementTest, RandomPairs) {
  std::int64_t compared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const MeshOptions meshes{.max_ranks = 64, .rank_maps = true};
    const MeshShape mesh = random_mesh(random, meshes);
    const Shape shape = random_shape(random);
    const PlacementOptions placements{.max_split_factor = 4};
    const Layout from = random_layout_on(random, mesh, shape, placements);
    const MeshShape other = random.one_in(2) ? random_mesh(random, meshes) : mesh;
    const Layout to = random_layout_on(random, other, shape, placements);
    SCOPED_TRACE(concat("seed ", seed, ": ", from, " to ", to));
    for (const auto rank : mesh.ranks())
      compared += expect_peers_agree(exchange_step(from, to), rank);
  }
  EXPECT_GT(compared, 10'000);
}

}  // namespace
}  // namespace tessera::test
