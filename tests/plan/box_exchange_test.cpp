#include "tessera/plan/box_exchange.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "support/random_boxes.h"

namespace tessera::test {
namespace {

/// The pieces of one rank: element indices of the whole tensor, -1 where nothing was written.
using Pieces = std::vector<std::vector<std::int64_t>>;

Pieces pieces_of(const BoxMap& map, std::int64_t rank, bool filled) {
  Pieces pieces;
  for (const auto& box : map.held_by(rank)) {
    pieces.emplace_back(static_cast<std::size_t>(box.numel()), -1);
    if (!filled) continue;
    for_each_element(map.shape(), box, [&](std::int64_t index, std::int64_t position) {
      pieces.back()[static_cast<std::size_t>(position)] = index;
    });
  }
  return pieces;
}

/// Calls visit(element of its piece) for what a message carries, in packed order.
template <typename Visit>
void visit_message(const BoxExchange& own, const Message& message, const BoxMap& map,
                   std::int64_t rank, Pieces& pieces, const Visit& visit) {
  const auto held = map.held_by(rank);
  for (std::size_t i = 0; i < message.box_count; ++i) {
    const auto extents = own.step.box(message, i);
    const std::size_t piece = own.pieces[message.first_box + i];
    for_each_element(held[piece].shape(), Box{{extents.begin(), extents.end()}},
                     [&](std::int64_t index, std::int64_t) {
                       visit(pieces[piece][static_cast<std::size_t>(index)]);
                     });
  }
}

/// Carries out the parts of all ranks, message by message, and checks them against what the maps
/// say; returns how many elements moved between ranks.
std::int64_t check_move(const BoxMap& from, const BoxMap& to,
                        const std::vector<std::int64_t>& ranks) {
  std::map<std::int64_t, BoxExchange> own;
  for (const auto rank : ranks) own.emplace(rank, plan_box_exchange(from, to, rank));
  std::int64_t moved = 0;
  for (const auto rank : ranks) {
    Pieces result = pieces_of(to, rank, false);
    for (const auto& message : own.at(rank).step.receives) {
      const BoxExchange& sender = own.at(message.peer);
      const auto sent = std::find_if(sender.step.sends.begin(), sender.step.sends.end(),
                                     [&](const Message& other) { return other.peer == rank; });
      EXPECT_NE(sent, sender.step.sends.end());
      if (sent == sender.step.sends.end()) return -1;
      EXPECT_EQ(sent->numel, message.numel);
      EXPECT_EQ(sent->box_count, message.box_count);
      Pieces source = pieces_of(from, message.peer, true);
      std::vector<std::int64_t> packed;
      visit_message(sender, *sent, from, message.peer, source,
                    [&](std::int64_t& element) { packed.push_back(element); });
      std::size_t next = 0;
      visit_message(own.at(rank), message, to, rank, result, [&](std::int64_t& element) {
        EXPECT_EQ(element, -1) << "received twice";
        element = packed.at(next++);
      });
    }
    EXPECT_EQ(result, pieces_of(to, rank, true)) << "rank " << rank;
    // The bound: what the rank needs and does not hold.
    std::set<std::int64_t> held;
    for (const auto& piece : pieces_of(from, rank, true)) held.insert(piece.begin(), piece.end());
    std::int64_t bound = 0;
    for (const auto& piece : pieces_of(to, rank, true)) {
      bound += std::count_if(piece.begin(), piece.end(),
                             [&](std::int64_t index) { return held.count(index) == 0; });
    }
    EXPECT_EQ(own.at(rank).received_numel, bound) << "rank " << rank;
    moved += bound;
  }
  EXPECT_EQ(needs_traffic(from, to), moved > 0);
  return moved;
}

TEST(BoxExchangeTest, MovesRandomTilingsAtTheBound) {
  std::int64_t moved = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 7});
    const auto ranks = random_ranks(random, random.between(1, 5));
    const BoxMap from(shape, random_tiling(random, shape, random.between(0, 7), ranks));
    const BoxMap to(shape, random_tiling(random, shape, random.between(0, 7), ranks));
    moved += check_move(from, to, ranks);
    EXPECT_EQ(check_move(from, from, ranks), 0);
  }
  EXPECT_GT(moved, 1000);
}

TEST(BoxExchangeTest, TakesReplicasFromTheRanksOwnCopyFirst) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const MeshShape mesh = random_mesh(random, {.max_dims = 3, .max_size = 3, .max_ranks = 8});
    const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 5});
    const BoxMap from = BoxMap::of(random_layout_on(random, mesh, shape));
    const BoxMap to = BoxMap::of(random_layout_on(random, mesh, shape));
    check_move(from, to, mesh.ranks());
  }
}

TEST(BoxExchangeTest, ASingleHolderSendsAndARootCollects) {
  const BoxMap spread({4, 2}, {{Box{{{0, 2}, {0, 2}}}, 1}, {Box{{{2, 2}, {0, 2}}}, 0}});
  const BoxMap whole = BoxMap::on_one_rank({4, 2}, 1);
  EXPECT_EQ(check_move(whole, spread, {0, 1}), 4);
  EXPECT_EQ(check_move(spread, whole, {0, 1}), 4);
  EXPECT_EQ(plan_box_exchange(spread, whole, 0).sent_numel, 4);
}

TEST(BoxExchangeTest, RefusesMapsThatDoNotFit) {
  const BoxMap four = BoxMap::on_one_rank({4}, 0);
  EXPECT_THAT(
      [&] {
        return plan_box_exchange(four, BoxMap::on_one_rank({2, 2}, 0), 0);
      },
      throws_invalid_argument("plan_box_exchange: boxes of shape [4] given to be moved to "
                              "boxes of shape [2,2]; the shapes must be equal"));
  const BoxMap half({4}, {{Box{{{0, 2}}}, 0}});
  EXPECT_THAT([&] { return plan_box_exchange(half, four, 0); },
              throws_invalid_argument("plan_box_exchange: the boxes given hold 2 elements of the 4 "
                                      "that shape [4] has; every element must be held, and by one "
                                      "box only"));
}

}  // namespace
}  // namespace tessera::test
