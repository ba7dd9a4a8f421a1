#include "tessera/sharded/sharded_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/torch.h>

#include "sharded/refusal.h"
#include "sharded/refusal_cases.h"
#include "sharded/sharded_cases.h"
#include "support/rank_test.h"
#include "tessera/comm/collectives.h"
#include "tessera/comm/traffic.h"
#include "tessera/sharded/factories.h"
#include "tessera/sharded/process_group.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/factories.h"
#include "tessera/tensor/random.h"

namespace tessera::sharded {
namespace {

using test::counted;
using test::expect_shards;
using test::on_every_rank_count;
using test::refusal;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::int64_t> reversed(std::vector<std::int64_t> ranks) {
  std::reverse(ranks.begin(), ranks.end());
  return ranks;
}

TEST(ShardedTensorTest, RandomSpecsReshardAtTheBoundAndGatherTheOriginal) {
  on_every_rank_count([](World& world) { test::check_random_resharding(world.group(), 0, 60); });
}

TEST(ShardedTensorTest, SubGroupsWorkSideBySide) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    run_ranks(ranks, [](World& world) { test::check_sub_groups(world, 0, 12); });
  }
}

TEST(ShardedTensorTest, AMistakeOfOneRankIsRefusedByAll) {
  for (const std::int64_t ranks : {2, 3, 4}) run_ranks(ranks, test::check_refusals);
}

TEST(ShardedTensorTest, RandomSpecsBecomeDTensorsAndComeBack) {
  on_every_rank_count([](World& world) { test::check_random_dtensors(world, 0, 60); });
}

TEST(ShardedTensorTest, FiveRowsOverFourRanksEndWithAnEmptyShard) {
  run_ranks(4, [](World& world) {
    const auto tensor =
        shard_tensor(counted({5, 2}), ChunkShardingSpec::over(0, world.group().ranks()));
    expect_shards(tensor, counted({5, 2}));
    const std::int64_t rows[] = {2, 2, 1, 0};
    EXPECT_EQ(tensor.local_tensor().size(0), rows[world.rank()]);
    EXPECT_EQ(tensor.metadata().shards.back().offsets[0], 5);
    const auto columns = tensor.reshard(ChunkShardingSpec::over(1, {3, 2, 1, 0}));
    expect_shards(columns, counted({5, 2}));
  });
}

TEST(ShardedTensorTest, ReshardsAThreeCycleOfPlacements) {
  run_ranks(3, [](World&) {
    const auto tensor = shard_tensor(counted({6, 2}), ChunkShardingSpec::over(0, {0, 1, 2}));
    CommDebugMode traffic;
    const auto scope = traffic.record();
    const auto turned = tensor.reshard(ChunkShardingSpec::over(0, {1, 2, 0}));
    expect_shards(turned, counted({6, 2}));
    EXPECT_EQ(traffic.received_bytes(), 2 * 2 * 4);
  });
}

TEST(ShardedTensorTest, AReshardToTheSameSpecMovesNothingAndSharesNothing) {
  on_every_rank_count([](World& world) {
    const auto spec = ChunkShardingSpec::over(0, reversed(world.group().ranks()));
    const auto tensor = shard_tensor(counted({7, 3}), spec);
    CommDebugMode traffic;
    const auto scope = traffic.record();
    const auto same = tensor.reshard(spec);
    EXPECT_EQ(traffic.total_count(), 0);
    same.local_tensor().zero_();
    expect_shards(tensor, counted({7, 3}));
  });
}

TEST(ShardedTensorTest, GathersOnSubGroupsWhoseRanksAreNotTheirPlaces) {
  run_ranks(4, [](World& world) {
    const bool odd = world.rank() % 2 == 1;
    const Group group =
        world.group(odd ? std::vector<std::int64_t>{3, 1} : std::vector<std::int64_t>{0, 2});
    const at::Tensor whole = counted({5, 3}) * (odd ? 10 : 1);
    const auto tensor = shard_tensor(whole, ChunkShardingSpec::over(0, group.ranks()), 1, group);
    expect_shards(tensor, whole);
    const at::Tensor gathered = tensor.gather(1);
    EXPECT_EQ(gathered.defined(), group.index() == 1);
    if (gathered.defined()) {
      EXPECT_TRUE(torch::equal(gathered, whole));
    }
  });
}

TEST(ShardedTensorTest, GathersIntoOutWhichMayBeStrided) {
  on_every_rank_count([](World& world) {
    const auto tensor =
        shard_tensor(counted({4, 6}), ChunkShardingSpec::over(1, world.group().ranks()));
    const std::int64_t dst = world.size() - 1;
    const at::Tensor memory = torch::zeros({6, 4});
    const at::Tensor out = world.rank() == dst ? memory.t() : at::Tensor();
    const at::Tensor gathered = tensor.gather(dst, out);
    if (world.rank() == dst) {
      EXPECT_TRUE(gathered.is_same(out));
      EXPECT_TRUE(torch::equal(memory.t(), counted({4, 6})));
    }
  });
}

TEST(ShardedTensorTest, GathersIntoAViewThatShowsOtherValuesThanItsMemory) {
  on_every_rank_count([](World& world) {
    const at::Tensor whole = torch::complex(counted({4, 3}), -counted({4, 3}));
    const auto tensor = shard_tensor(whole, ChunkShardingSpec::over(0, world.group().ranks()));
    at::Tensor out;
    if (world.rank() == 0) out = torch::zeros({4, 3}, at::kComplexFloat).conj();
    const at::Tensor gathered = tensor.gather(0, out);
    if (world.rank() == 0) {
      EXPECT_TRUE(gathered.is_same(out));
      EXPECT_TRUE(torch::equal(gathered, whole));
    }
  });
}

TEST(ShardedTensorTest, RefusesAWrongOutOnAllRanks) {
  run_ranks(3, [](World& world) {
    const auto tensor =
        shard_tensor(counted({4, 6}), ChunkShardingSpec::over(0, world.group().ranks()));
    const auto gather_with = [&](std::int64_t rank, const at::Tensor& out, std::int64_t dst = 1) {
      CommDebugMode traffic;
      const auto scope = traffic.record();
      auto text =
          refusal(world, [&] { tensor.gather(dst, world.rank() == rank ? out : at::Tensor()); });
      EXPECT_EQ(traffic.received_bytes(), 0);
      return text;
    };
    EXPECT_THAT(
        gather_with(2, torch::zeros({4, 6})),
        HasSubstr("gather: Argument ``dst_tensor`` must NOT be specified on non-destination "
                  "ranks: `out` given on rank 2, but dst=1 is another rank"));
    EXPECT_THAT(gather_with(1, torch::zeros({6, 4})),
                HasSubstr("`out` is float32[6,4], the tensor is float32[4,6]"));
    EXPECT_THAT(gather_with(1, torch::zeros({4, 6}, at::kDouble)), HasSubstr("`out` is float64"));
    EXPECT_THAT(gather_with(1, torch::zeros({4, 6}, torch::requires_grad())),
                HasSubstr("`out` requires gradients"));
    EXPECT_THAT(gather_with(1, torch::zeros({1, 6}).expand({4, 6})),
                HasSubstr("`out` has strides [0,1], so that several of its elements are the same"));
    const DeviceMesh mesh("cpu", MeshShape({3}), world);
    EXPECT_THAT(gather_with(1, distribute_tensor(torch::zeros({4, 6}), mesh, {Replicate()})),
                HasSubstr("a DTensor given as `out`"));
    EXPECT_THAT(gather_with(0, at::Tensor(), 3),
                HasSubstr("gather: dst=3 given for group world of ranks [0,1,2]; it is a place in "
                          "the group, 0 to 2"));
    EXPECT_THAT(gather_with(0, at::Tensor(), world.rank() == 2 ? 1 : 0),
                HasSubstr("gather: dst=0 on rank: 0 does not match with dst=1 on rank: 2"));
    expect_shards(tensor, counted({4, 6}));
  });
}

TEST(ShardedTensorTest, ShardsOneElementAndNone) {
  on_every_rank_count([](World& world) {
    const std::int64_t last = world.size() - 1;
    const EnumerableShardingSpec spec({ShardMetadata({}, {}, RankDevice(last))});
    const auto scalar = shard_tensor(torch::full({}, 7.0F), spec);
    EXPECT_EQ(scalar.local_shards().size(), world.rank() == last ? 1U : 0U);
    const at::Tensor gathered = scalar.gather();
    if (world.rank() == 0) {
      EXPECT_EQ(gathered.item<float>(), 7.0F);
    }
    const auto nothing =
        shard_tensor(torch::zeros({0, 4}), ChunkShardingSpec::over(0, world.group().ranks()));
    EXPECT_EQ(nothing.local_tensor().sizes(), (std::vector<std::int64_t>{0, 4}));
    expect_shards(nothing.reshard(ChunkShardingSpec::over(1, world.group().ranks())),
                  torch::zeros({0, 4}));
  });
}

TEST(ShardedTensorTest, KeepsWhetherItRequiresGradients) {
  run_ranks(2, [](World&) {
    const at::Tensor x = torch::ones({4, 2}, torch::requires_grad());
    const auto tensor = shard_tensor(x, ChunkShardingSpec::over(0, {1, 0}));
    EXPECT_TRUE(tensor.metadata().properties.requires_grad);
    EXPECT_TRUE(tensor.local_tensor().requires_grad());
    EXPECT_TRUE(tensor.local_tensor().is_leaf());
    const auto moved = tensor.reshard(ChunkShardingSpec::over(1, {0, 1}));
    EXPECT_TRUE(moved.local_tensor().requires_grad());
    EXPECT_TRUE(moved.local_tensor().is_leaf());
  });
}

TEST(ShardedTensorTest, OnlyOneShardIsALocalTensor) {
  run_ranks(2, [](World& world) {
    const auto tensor = shard_tensor(counted({4}), ChunkShardingSpec::over(0, {0, 0}));
    try {
      (void)tensor.local_tensor();
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr(concat("Only single local shard is supported, and rank ", world.rank(),
                                   " has ", world.rank() == 0 ? 2 : 0, " of this tensor")));
    }
  });
}

TEST(ShardedTensorTest, Prints) {
  run_ranks(2, [](World& world) {
    const auto tensor = shard_tensor(counted({4}), ChunkShardingSpec::over(0, {0, 0}));
    EXPECT_EQ(concat(tensor),
              concat("ShardedTensor [4], float32\n"
                     "  [0, 2) on rank:0/cpu\n  [2, 4) on rank:0/cpu\nrank ",
                     world.rank(), " holds ", world.rank() == 0 ? "[0, 2), [2, 4)" : "nothing"));
  });
}

TEST(ShardTensorTest, RefusesOnAllRanksBeforeAnythingMoves) {
  run_ranks(3, [](World& world) {
    const ShardingSpec spec = ChunkShardingSpec::over(0, {0, 1, 2});
    const ShardingSpec other = ChunkShardingSpec::over(0, {2, 1, 0});
    const at::Tensor whole = counted({6, 2});
    const bool last = world.rank() == 2;
    CommDebugMode traffic;
    const auto scope = traffic.record();
    const auto refused = [&](const at::Tensor& tensor, const ShardingSpec& its_spec,
                             std::int64_t src_rank) {
      return refusal(world, [&] { (void)shard_tensor(tensor, its_spec, src_rank); });
    };
    EXPECT_EQ(refused(whole, spec, last ? 1 : 0),
              "shard_tensor: src_rank=0 on rank: 0 does not match with src_rank=1 on rank: 2");
    EXPECT_EQ(refused(whole, last ? other : spec, 0),
              concat("shard_tensor: sharding_spec=", spec,
                     " on rank: 0 does not match with sharding_spec=", other, " on rank: 2"));
    EXPECT_EQ(refused(last ? counted({6, 3}) : whole, spec, 0),
              "shard_tensor: size=[6,2] on rank: 0 does not match with size=[6,3] on rank: 2");
    EXPECT_EQ(
        refused(last ? whole.to(at::kDouble) : whole, spec, 0),
        "shard_tensor: dtype=float32 on rank: 0 does not match with dtype=float64 on rank: 2");
    EXPECT_THAT(refused(last ? whole.clone().requires_grad_() : whole, spec, 0),
                HasSubstr("requires_grad=false on rank: 0 does not match with requires_grad=true"));
    const std::string strided = refused(last ? counted({2, 6}).t() : whole, spec, 0);
    EXPECT_THAT(strided, HasSubstr("shard_tensor: input tensor is not a contiguous Tensor: sizes "
                                   "[6,2], strides [1,6]; pass tensor.contiguous()"));
    EXPECT_EQ(strided.find("rank 2 was called with something wrong") != std::string::npos, !last);
    EXPECT_THAT(refused(whole, ChunkShardingSpec::over(0, {0, 3}), 0),
                HasSubstr("placement rank:3/cpu given, but Global rank 3 does not exist in input "
                          "process group world of ranks [0,1,2]"));
    EXPECT_THAT(refused(whole, ChunkShardingSpec(0, {"rank:0/cuda:0"}), 0),
                HasSubstr("placement rank:0/cuda:0 given for a tensor on cpu"));
    EXPECT_THAT(refused(whole, ChunkShardingSpec::over(2, {0}), 0),
                HasSubstr("Invalid sharding dim: 2"));
    EXPECT_THAT(refused(whole, spec, 3), HasSubstr("src_rank=3 given for group world"));
    EXPECT_THAT(refused(at::Tensor(), spec, 0), HasSubstr("an undefined tensor given"));
    EXPECT_THAT(refused(whole.clone().requires_grad_() * 2, spec, 0),
                HasSubstr("a tensor with history given"));
    EXPECT_THAT(refused(whole.to_sparse(), spec, 0),
                HasSubstr("Only torch.strided layout is currently supported, but found Sparse"));
    EXPECT_EQ(traffic.received_bytes(), 0);
    expect_shards(shard_tensor(whole, spec), whole);
  });
}

TEST(ReshardTest, RefusesOnAllRanksBeforeAnythingMoves) {
  run_ranks(2, [](World& world) {
    const auto tensor = shard_tensor(counted({6, 2}), ChunkShardingSpec::over(0, {0, 1}));
    const bool last = world.rank() == 1;
    const auto refused = [&](const ShardingSpec& spec) {
      return refusal(world, [&] { (void)tensor.reshard(spec); });
    };
    EXPECT_THAT(refused(ChunkShardingSpec::over(last ? 1 : 0, {0, 1})),
                HasSubstr("reshard: sharding_spec=ChunkShardingSpec(dim=0, placements=[rank:0/cpu, "
                          "rank:1/cpu]) on rank: 0 does not match with sharding_spec="));
    EXPECT_THAT(refused(ChunkShardingSpec::over(0, {0, 5})), HasSubstr("rank 5 does not exist"));
    EXPECT_THAT(refused(EnumerableShardingSpec({ShardMetadata({0, 0}, {3, 2}, "rank:0/cpu")})),
                HasSubstr("Total volume of shards: 6"));
    const at::Tensor leaf = torch::ones({3, 2}, torch::requires_grad());
    const auto with_history = init_from_local_shards(
        {{leaf * 2, ShardMetadata({3 * world.rank(), 0}, {3, 2}, RankDevice(world.rank()))}},
        {6, 2});
    EXPECT_THAT(refusal(world,
                        [&] {
                          (void)with_history.reshard(ChunkShardingSpec::over(1, {0, 1}));
                        }),
                HasSubstr("has history, through which reshard does not differentiate"));
  });
}

TEST(InitFromLocalShardsTest, SharesMemoryAndInfersTheSpec) {
  on_every_rank_count([](World& world) {
    const std::int64_t size = world.size();
    const std::int64_t chunk = size - 1 - world.rank();  // The last rank has the first chunk.
    const at::Tensor whole = counted({2 * size, 3});
    const at::Tensor piece = whole.narrow(0, 2 * chunk, 2).clone();
    const auto tensor = init_from_local_shards(
        {{piece, ShardMetadata({2 * chunk, 0}, {2, 3}, RankDevice(world.rank()))}}, {2 * size, 3});
    EXPECT_EQ(tensor.sharding_spec(),
              ShardingSpec(ChunkShardingSpec::over(0, reversed(world.group().ranks()))));
    EXPECT_TRUE(tensor.local_tensor().is_same(piece));
    expect_shards(tensor, whole);
    expect_shards(tensor.reshard(ChunkShardingSpec::over(1, world.group().ranks())), whole);
  });
}

TEST(InitFromLocalShardsTest, TakesStridedAndSeveralShardsAndRanksWithoutAny) {
  run_ranks(3, [](World& world) {
    const at::Tensor whole = counted({4, 4});
    std::vector<LocalShard> shards;
    if (world.rank() == 2) {
      const ShardMetadata right({0, 1}, {4, 3}, "rank:2/cpu");
      const ShardMetadata left({0, 0}, {4, 1}, "rank:2/cpu");
      shards = {{test::slice_of(whole, right), right}, {test::slice_of(whole, left), left}};
    }
    const auto tensor = init_from_local_shards(shards, {4, 4});
    expect_shards(tensor, whole);
    EXPECT_TRUE(std::holds_alternative<EnumerableShardingSpec>(tensor.sharding_spec()));
    expect_shards(tensor.reshard(ChunkShardingSpec::over(0, {0, 1, 2})), whole);
  });
}

TEST(InitFromLocalShardsTest, RefusesWhatDoesNotFitTogether) {
  run_ranks(2, [](World& world) {
    const std::int64_t rank = world.rank();
    const bool last = rank == 1;
    const ShardMetadata own({2 * rank}, {2}, RankDevice(rank));
    const auto refused = [&](const std::vector<LocalShard>& shards,
                             const std::vector<std::int64_t>& size = {4}) {
      return refusal(world, [&] { (void)init_from_local_shards(shards, size); });
    };
    const at::Tensor piece = torch::zeros({2});
    EXPECT_EQ(refused({{last ? piece.to(at::kDouble) : piece, own}}),
              "init_from_local_shards: ShardedTensor dtype property does not match from different "
              "ranks! Found dtype=float32 on rank:0, and dtype=float64 on rank:1");
    EXPECT_EQ(refused({{piece, own}}, {last ? 5 : 4}),
              "init_from_local_shards: ShardedTensor global_size property does not match from "
              "different ranks! Found global_size=[4] on rank:0, and global_size=[5] on rank:1");
    EXPECT_EQ(refused({{last ? torch::zeros({2}, torch::requires_grad()) : piece, own}}),
              "init_from_local_shards: ShardedTensor requires_grad property does not match from "
              "different ranks! Found requires_grad=false on rank:0, and requires_grad=true on "
              "rank:1");
    EXPECT_EQ(refused({{last ? piece.to_sparse() : piece, own}}),
              "init_from_local_shards: ShardedTensor layout property does not match from different "
              "ranks! Found layout=Strided on rank:0, and layout=Sparse on rank:1");
    EXPECT_THAT(refused({{piece.to_sparse(), own}}),
                HasSubstr("Only torch.strided layout is currently supported, but found Sparse"));
    EXPECT_THAT(refused({}), HasSubstr("ShardedTensor have no local shards on all ranks"));
    EXPECT_THAT(
        refused({{torch::zeros({3}), own}}),
        HasSubstr("Shard tensor size does not match with metadata.shard_lengths! The tensor is "
                  "[3], the shard "));
    EXPECT_THAT(refused({{piece, ShardMetadata({2 * rank}, {2}, "rank:0/cpu")}}),
                HasSubstr("Local shard metadata's rank does not match with the rank in its process "
                          "group! Shard [2, 4) on rank:0/cpu was given on rank 1"));
    EXPECT_THAT(
        refused({{piece, ShardMetadata({2 * rank}, {2}, RankDevice(rank, "cuda:0"))}}),
        HasSubstr("Local shard tensor device does not match with local Shard's placement!"));
    EXPECT_THAT(refused({{piece, ShardMetadata({2 * rank}, {2}, RankDevice(rank, "nowhere"))}}),
                HasSubstr("/nowhere"));
    EXPECT_THAT(refused({{piece, ShardMetadata({rank}, {2}, RankDevice(rank))}}),
                HasSubstr("Shards [0, 2) on rank:0/cpu and [1, 3) on rank:1/cpu overlap"));
    EXPECT_THAT(refused({{piece, own}}, {6}), HasSubstr("Total volume of shards: 4"));
    EXPECT_THAT(refused({{piece.narrow(0, 0, 1), ShardMetadata({2 * rank}, {1}, RankDevice(rank))},
                         {piece.narrow(0, 0, 1).to(at::kDouble),
                          ShardMetadata({2 * rank + 1}, {1}, RankDevice(rank))}}),
                HasSubstr("Local shards' tensor dtype property need to be the same on rank:"));
    EXPECT_THAT(refused({{piece, own}}, {3}), HasSubstr("exceeds tensor dim 0"));
    EXPECT_THAT(refused({{at::Tensor(), own}}), HasSubstr("an undefined tensor given as shard"));
  });
}

TEST(ShardedTensorDTensorTest, OperationsOnTheDTensorAreOperationsOnTheShards) {
  on_every_rank_count([](World& world) {
    const at::Tensor whole = counted({6, 4});
    const auto tensor =
        shard_tensor(whole, ChunkShardingSpec::over(0, reversed(world.group().ranks())));
    const at::Tensor x = tensor.to_dtensor();
    x.mul_(2);
    expect_shards(tensor, whole * 2);
    const at::Tensor product = torch::mm(x.t(), x);
    EXPECT_TRUE(torch::allclose(full_tensor(product), (whole * 2).t().mm(whole * 2)));
    const auto result = from_dtensor(torch::relu(x - 5));
    EXPECT_EQ(result.sharding_spec(), tensor.sharding_spec());
    expect_shards(result, torch::relu(whole * 2 - 5));
  });
}

TEST(ShardedTensorDTensorTest, GradientsReachTheShards) {
  on_every_rank_count([](World& world) {
    const auto tensor = shard_tensor(counted({5, 3}).requires_grad_(),
                                     ChunkShardingSpec::over(0, world.group().ranks()));
    tensor.to_dtensor().square().sum().backward();
    EXPECT_TRUE(torch::equal(tensor.local_tensor().grad(), tensor.local_tensor().detach() * 2));
  });
}

TEST(ShardedTensorDTensorTest, StridedLayoutsHaveSeveralShards) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh("cpu", MeshShape({2}), world);
    const at::Tensor whole = counted({8, 2});
    const at::Tensor x = distribute_tensor(whole, mesh, {StridedShard(0, 2)});
    const auto tensor = from_dtensor(x);
    EXPECT_EQ(tensor.local_shards().size(), 2U);
    expect_shards(tensor, whole);
    tensor.local_shards()[1].tensor.zero_();
    EXPECT_TRUE(torch::equal(to_local(x).narrow(0, 2, 2), torch::zeros({2, 2})));
  });
}

TEST(ShardedTensorDTensorTest, RefusesWhatCannotBeExpressed) {
  run_ranks(2, [](World& world) {
    const DeviceMesh mesh("cpu", MeshShape({2}, {"tp"}), world);
    const auto twice = shard_tensor(counted({4}), ChunkShardingSpec::over(0, {0, 1, 0, 1}));
    EXPECT_THAT(refusal(world, [&] { (void)twice.to_dtensor(); }),
                HasSubstr("to_dtensor: no DTensor is placed as ChunkShardingSpec(dim=0, "));
    EXPECT_THAT(refusal(world, [&] { (void)twice.to_dtensor(mesh, {Partial()}); }),
                HasSubstr("redistribute to Partial afterwards"));
    EXPECT_THAT(refusal(world, [&] { (void)twice.to_dtensor(mesh, {Shard(1)}); }),
                HasSubstr("to_dtensor"));
    const at::Tensor replicated = distribute_tensor(counted({4}), mesh, {Replicate()});
    EXPECT_THAT(refusal(world, [&] { (void)from_dtensor(replicated); }),
                HasSubstr("is not sharded along mesh dim tp"));
    EXPECT_THAT(refusal(world, [&] { (void)from_dtensor(counted({4})); }),
                HasSubstr("from_dtensor: a plain tensor given; use shard_tensor"));
    const at::Tensor partial = distribute_tensor(counted({4}), mesh, {Partial()});
    EXPECT_THAT(
        refusal(world, [&] { (void)from_dtensor(partial, ChunkShardingSpec::over(0, {0})); }),
        HasSubstr("given; reduce it first"));
    EXPECT_THAT(refusal(world, [&] { (void)shard_tensor(replicated, twice.sharding_spec()); }),
                HasSubstr("a DTensor given; use from_dtensor"));
  });
}

TEST(ShardedFactoriesTest, MakeTheSameTensorForEverySpec) {
  on_every_rank_count([](World& world) {
    const std::vector<std::int64_t> sizes{5, 4};
    const auto ranks = world.group().ranks();
    const DeviceMesh mesh("cpu", MeshShape({world.size()}), world);
    test::Random random(3);
    for (int i = 0; i < 4; ++i) {
      const auto spec = test::random_spec(random, sizes, ranks);
      expect_shards(zeros(spec, sizes), torch::zeros(sizes));
      expect_shards(ones(spec, sizes, at::kDouble), torch::ones(sizes, at::kDouble));
      expect_shards(full(spec, sizes, 7), torch::full(sizes, 7));
      EXPECT_EQ(full(spec, sizes, 7).scalar_type(), at::kLong);
      EXPECT_EQ(empty(spec, sizes, torch::requires_grad()).metadata().properties.requires_grad,
                true);
      manual_seed(11);
      const at::Tensor uniform = full_tensor(tessera::rand(sizes, mesh));
      const at::Tensor normal = full_tensor(tessera::randn(sizes, mesh, {}, at::kDouble));
      manual_seed(11);
      expect_shards(rand(spec, sizes), uniform);
      expect_shards(randn(spec, sizes, at::kDouble), normal);
    }
  });
}

TEST(ShardedFactoriesTest, RefuseOnAllRanks) {
  run_ranks(2, [](World& world) {
    const std::int64_t own = world.rank() + 4;
    EXPECT_THAT(refusal(world,
                        [&] {
                          (void)zeros(ChunkShardingSpec::over(0, {0, 1}), {own});
                        }),
                HasSubstr("zeros: sizes=[4] on rank: 0 does not match with sizes=[5] on rank: 1"));
    EXPECT_THAT(refusal(world, [&] { (void)ones(ChunkShardingSpec::over(0, {2}), {4}); }),
                HasSubstr("ones: placement rank:2/cpu given, but Global rank 2 does not exist"));
    EXPECT_THAT(refusal(world,
                        [&] {
                          (void)full(ChunkShardingSpec::over(0, {0}), {4}, 1,
                                     torch::dtype(at::kLong).requires_grad(true));
                        }),
                HasSubstr("full: requires_grad given for int64"));
    EXPECT_THAT(refusal(world, [&] { (void)zeros(ChunkShardingSpec::over(0, {0}), {-1}); }),
                HasSubstr("zeros: sizes [-1] given; they must be >= 0"));
    // A device that only one rank was to have.
    std::string text;
    try {
      (void)zeros(ChunkShardingSpec::over(0, {1}, "nowhere"), {4});
    } catch (const std::exception& error) {
      text = error.what();
    }
    EXPECT_THAT(text, HasSubstr("nowhere"));
  });
}

TEST(ProcessGroupTest, AGuardChangesTheGroupThatIsUsed) {
  run_ranks(4, [](World& world) {
    EXPECT_EQ(current_process_group(), world.group());
    const Group half = world.group(world.rank() < 2 ? std::vector<std::int64_t>{0, 1}
                                                    : std::vector<std::int64_t>{2, 3});
    {
      const auto guard = load_with_process_group(half);
      EXPECT_EQ(current_process_group(), half);
      EXPECT_EQ(zeros(ChunkShardingSpec::over(0, half.ranks()), {4}).group(), half);
      EXPECT_THAT(refusal(world, [&] { const auto second = load_with_process_group(half); }),
                  HasSubstr("ProcessGroup already set by previous \"load_with_process_group\" "
                            "context manager"));
      EXPECT_EQ(current_process_group(), half);
    }
    EXPECT_EQ(current_process_group(), world.group());
  });
}

TEST(ShardedTensorBytesTest, ComeBackInTheSameGroup) {
  run_ranks(4, [](World& world) {
    const Group half = world.group(world.rank() < 2 ? std::vector<std::int64_t>{0, 1}
                                                    : std::vector<std::int64_t>{2, 3});
    const auto& ranks = half.ranks();
    const at::Tensor whole = counted({5, 3}, at::kDouble).requires_grad_();
    const auto tensor =
        shard_tensor(whole, ChunkShardingSpec::over(0, {ranks[1], ranks[0], ranks[1]}), 0, half);
    const std::string bytes = to_bytes(tensor);
    {
      const auto guard = load_with_process_group(half);
      const auto loaded = load_sharded_tensor(bytes);
      EXPECT_EQ(loaded.sharding_spec(), tensor.sharding_spec());
      EXPECT_EQ(loaded.metadata(), tensor.metadata());
      expect_shards(loaded, whole.detach());
    }
    EXPECT_THAT(refusal(world, [&] { (void)load_sharded_tensor(bytes); }),
                HasSubstr("for group world of ranks [0,1,2,3]; they must be the same"));
    EXPECT_THAT(refusal(world, [&] { (void)load_sharded_tensor(bytes.substr(1), half); }),
                HasSubstr("the bytes given are not those of to_bytes"));
    const auto all = all_gather_object(bytes, half);
    EXPECT_THAT(refusal(world,
                        [&] {
                          (void)load_sharded_tensor(all[static_cast<std::size_t>(1 - half.index())],
                                                    half);
                        }),
                HasSubstr("every rank loads its own"));
  });
}

TEST(AgreementTest, WithoutChecksARankThrowsWhatItFoundItself) {
  WorldOptions options = test::test_options();
  options.check = false;
  run_ranks(
      2,
      [](World& world) {
        const auto tensor = shard_tensor(counted({4}), ChunkShardingSpec::over(0, {0, 1}));
        EXPECT_THAT(refusal(world, [&] { (void)tensor.reshard(ChunkShardingSpec::over(1, {0})); }),
                    HasSubstr("Invalid sharding dim: 1"));
        expect_shards(tensor.reshard(ChunkShardingSpec::over(0, {1, 0})), counted({4}));
      },
      options);
}

}  // namespace
}  // namespace tessera::sharded
