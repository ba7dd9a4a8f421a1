#include <mutex>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "comm/redistribute_oracle.h"
#include "support/rank_test.h"
#include "tessera/base/concat.h"
#include "tessera/comm/comm_error.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/tensor/dtensor.h"

// Redistributions on which the ranks do not agree: all that take part find out, before data moves.

namespace tessera::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// One rank's call.
struct Move {
  Layout from;
  Layout to;
  at::ScalarType dtype = at::kFloat;
  RedistributeLocalOptions options = {};
};

at::Tensor local_part(const Move& move, std::int64_t rank) {
  return at::ones(move.from.local_shape(*move.from.mesh().position_of(rank)), move.dtype);
}

/// What each rank's call throws; empty where it returns, with a result of the right shape. Every
/// rank must throw a `CommError`, or an `InvalidArgument` that is nested around one.
std::vector<std::string> errors_of(std::int64_t ranks, const std::function<Move(std::int64_t)>& of,
                                   const WorldOptions& options, bool indirect = false) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_ranks(
      ranks,
      [&](World& world) {
        const Move move = of(world.rank());
        if (indirect) make_indirect(world, move.from.mesh());
        try {
          const at::Tensor moved =
              redistribute_local(local_part(move, world.rank()), move.from, move.to, move.options);
          const auto position = *move.to.mesh().position_of(world.rank());
          EXPECT_EQ(moved.sizes(), at::IntArrayRef(move.to.local_shape(position)));
        } catch (const CommError& error) {
          errors[static_cast<std::size_t>(world.rank())] = error.what();
        }
      },
      options);
  return errors;
}

const MeshShape kSquare({2, 2}, {"dp", "tp"});

Move square_move(const Placements& from, const Placements& to, const Shape& shape) {
  return {Layout(kSquare, from, shape), Layout(kSquare, to, shape)};
}

TEST(RedistributeAgreementTest, HalvesOfAMeshThatDifferAreFoundOnAllRanks) {
  // Each half agrees among itself in the first step, and meets the other half in the second.
  for (const bool indirect : {false, true}) {
    for (const auto& odd : {std::vector<std::int64_t>{2, 3}, {1, 3}, {0, 1}, {3}}) {
      for (const Shape& other : {Shape{8, 12}, Shape{512, 512}, Shape{0, 8}}) {
        const auto errors = errors_of(
            4,
            [&](std::int64_t rank) {
              const bool is_odd = std::find(odd.begin(), odd.end(), rank) != odd.end();
              return square_move({Partial(), Shard(0)}, {Replicate(), Shard(1)},
                                 is_odd ? other : Shape{8, 8});
            },
            test_options(), indirect);
        EXPECT_THAT(errors, ::testing::Each(
                                AllOf(StartsWith("redistribute on group world, rank "),
                                      HasSubstr("the ranks do not agree: rank "),
                                      HasSubstr("calls redistribute(Float [8,8][P(sum),S(0)] on"),
                                      HasSubstr(concat("calls redistribute(Float [",
                                                       joined(other, ","), "][P(sum),S(0)] on")))));
      }
    }
  }
}

/// Every rank throws that moves data with the odd one, and nobody waits for ever.
void expect_odd_one_found(const Placements& from, const Placements& to, const Shape& odd_shape,
                          bool indirect) {
  SCOPED_TRACE(concat(to_string(from), " to ", to_string(to), indirect ? ", indirect" : ""));
  constexpr std::int64_t kOdd = 3;
  const auto errors = errors_of(
      4,
      [&](std::int64_t rank) {
        return square_move(from, to, rank == kOdd ? odd_shape : Shape{6, 4});
      },
      test_options(), indirect);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank].empty()) continue;
    EXPECT_THAT(errors[rank],
                AllOf(HasSubstr("the ranks do not agree"), HasSubstr("rank 3 calls")));
  }
  const bool anybody = std::any_of(errors.begin(), errors.begin() + kOdd,
                                   [](const std::string& error) { return !error.empty(); });
  EXPECT_EQ(errors[kOdd].empty(), !anybody) << errors[kOdd];
}

TEST(RedistributeAgreementTest, EveryPairWithAnOddOneIsFoundOrDoesNotConcernIt) {
  const std::vector<Placement> kinds = {Replicate(), Shard(0), Shard(1), Partial()};
  for (std::size_t pair = 0; pair < 256; ++pair) {
    const Placements from = {kinds[pair % 4], kinds[pair / 4 % 4]};
    const Placements to = {kinds[pair / 16 % 4], kinds[pair / 64]};
    expect_odd_one_found(from, to, {6, 6}, pair % 2 == 1);
    if (pair % 8 == 0) expect_odd_one_found(from, to, {600, 600}, pair % 16 == 0);
  }
}

TEST(RedistributeAgreementTest, DifferentStagingBudgetsAreFound) {
  for (const bool indirect : {false, true}) {
    const auto errors = errors_of(
        4,
        [&](std::int64_t rank) {
          Move move = square_move({Shard(0), Shard(1)}, {Shard(1), Shard(0)}, {16, 16});
          if (rank == 2) move.options.staging_budget = 128;
          return move;
        },
        test_options(), indirect);
    EXPECT_THAT(errors, ::testing::Each(AllOf(HasSubstr("the ranks do not agree: rank 0 calls "),
                                              HasSubstr("rank 2 calls redistribute("),
                                              HasSubstr(", staging budget 128)"))));
  }
}

TEST(RedistributeAgreementTest, WithoutChecksThreadsStillFindStepsThatDoNotFit) {
  WorldOptions options = test_options();
  options.check = false;
  for (const auto& [from, to] : {std::pair<Placement, Placement>(Shard(0), Shard(1)),
                                 {Shard(0), Replicate()},
                                 {Partial(), Replicate()},
                                 {Partial(), Shard(0)}}) {
    const MeshShape mesh({3});
    const auto errors = errors_of(
        3,
        [&](std::int64_t rank) {
          const Shape shape = {6, rank == 1 ? 9 : 6};
          return Move{Layout(mesh, {from}, shape), Layout(mesh, {to}, shape)};
        },
        options);
    EXPECT_THAT(errors, ::testing::Each(HasSubstr("the ranks do not agree: in ")));
    const auto by_dtype = errors_of(
        3,
        [&](std::int64_t rank) {
          return Move{Layout(mesh, {from}, {6, 6}), Layout(mesh, {to}, {6, 6}),
                      rank == 1 ? at::kDouble : at::kFloat};
        },
        options);
    EXPECT_THAT(by_dtype, ::testing::Each(HasSubstr("the ranks do not agree: in ")));
  }
}

/// Rank 1's arguments are wrong: there it is `error`, and the others learn of it.
void expect_refused_on_all(const std::string& error, const std::function<at::Tensor()>& local,
                           const RedistributeLocalOptions& options = {}) {
  SCOPED_TRACE(error);
  for (const Placements& to :
       {Placements{Replicate(), Shard(1)}, Placements{Shard(1), Replicate()}}) {
    run_ranks(
        4,
        [&](World& world) {
          const Move move = square_move({Partial(), Shard(0)}, to, {8, 8});
          const bool is_wrong = world.rank() == 1;
          // Made by all, since making it may be a matter of all.
          const at::Tensor wrong = local();
          try {
            (void)redistribute_local(is_wrong ? wrong : local_part(move, world.rank()), move.from,
                                     move.to, is_wrong ? options : RedistributeLocalOptions());
            ADD_FAILURE() << "rank " << world.rank() << " did not notice";
          } catch (const InvalidArgument& thrown) {
            EXPECT_EQ(world.rank(), 1);
            EXPECT_THAT(thrown.what(), StartsWith(error));
          } catch (const CommError& thrown) {
            EXPECT_NE(world.rank(), 1);
            EXPECT_THAT(thrown.what(),
                        AllOf(HasSubstr("the ranks do not agree: rank 0 calls redistribute(Float "),
                              HasSubstr("rank 1 calls redistribute(invalid: " + error)));
          }
        },
        test_options());
  }
}

TEST(RedistributeAgreementTest, WrongArgumentsOfOneRankAreErrorsOnAll) {
  expect_refused_on_all(
      "redistribute_local: a local tensor of shape [8,8] given; in [8,8][P(sum),S(0)] on "
      "[dp=2, tp=2] it is [4,8]",
      [] {
        return at::ones({8, 8});
      });
  expect_refused_on_all(
      "redistribute_local: an undefined tensor given; pass the rank's part, or an empty "
      "tensor of the right dtype outside of the mesh",
      [] { return at::Tensor(); });
  expect_refused_on_all(
      "redistribute_local: a tensor of layout Sparse given; pass a strided tensor, e.g. by "
      "to_dense",
      [] {
        return at::ones({4, 8}).to_sparse();
      });
  expect_refused_on_all(
      "redistribute_local: a quantized tensor given; pass its int_repr, or dequantize it", [] {
        return at::quantize_per_tensor(at::ones({4, 8}), 0.5, 0, at::kQInt8);
      });
  expect_refused_on_all(
      "redistribute_local: a distributed tensor given; pass its local part, or call "
      "redistribute on it",
      [] {
        return from_local(at::ones({4, 8}), init_device_mesh("cpu", {2, 2}), {Partial(), Shard(0)});
      });
  expect_refused_on_all("plan_redistribute: staging_budget -1 given; it must be 0 or more bytes",
                        [] {
                          return at::ones({4, 8});
                        },
                        {.staging_budget = -1});
}

TEST(RedistributeAgreementTest, WhatAllRanksPassWronglyLeavesTheGroupUsable) {
  run_ranks(
      4,
      [](World& world) {
        const Move move = square_move({Partial(), Shard(0)}, {Replicate(), Shard(1)}, {8, 8});
        EXPECT_THROW((void)redistribute_local(at::ones({8, 8}).to_sparse(), move.from, move.to),
                     InvalidArgument);
        EXPECT_THROW((void)redistribute_local(local_part(move, world.rank()), move.from, move.to,
                                              {.staging_budget = -1}),
                     InvalidArgument);
        const at::Tensor moved =
            redistribute_local(local_part(move, world.rank()), move.from, move.to);
        EXPECT_TRUE(at::equal(moved, at::full({8, 4}, 2.0)));
      },
      test_options());
}

}  // namespace
}  // namespace tessera::test
