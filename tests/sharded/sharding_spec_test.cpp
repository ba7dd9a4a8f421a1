#include "tessera/sharded/sharding_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/throws_invalid_argument.h"
#include "support/random_boxes.h"
#include "tessera/base/concat.h"
#include "tessera/sharded/metadata.h"

namespace tessera::sharded {
namespace {

using test::Random;
using test::throws_invalid_argument;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

auto throws_with(const std::string& part) {
  return ThrowsMessage<InvalidArgument>(HasSubstr(part));
}

ChunkShardingSpec rows(std::vector<RankDevice> placements) { return {0, std::move(placements)}; }

TEST(RankDeviceTest, ReadsAndPrints) {
  const RankDevice placement = "rank:12/cuda:1";
  EXPECT_EQ(placement.rank, 12);
  EXPECT_EQ(placement.device, "cuda:1");
  EXPECT_EQ(placement.device_type(), "cuda");
  EXPECT_EQ(concat(placement), "rank:12/cuda:1");
  EXPECT_EQ(RankDevice("rank:1/cpu"), RankDevice(1));
  EXPECT_EQ(RankDevice("rank:1"), RankDevice(1));
}

TEST(RankDeviceTest, RefusesOtherTexts) {
  for (const char* text :
       {"", "rank", "rank:", "rank:/cpu", "rank:1/", "rank:-1/cpu", "rank:1x/cpu", "rank:+1/cpu",
        "1/cpu", "rank:1/CPU", "rank:1/cuda:", "rank:99999999999999999999/cpu", "rank: 1/cpu"}) {
    EXPECT_THAT(
        [&] { return RankDevice(text); },
        throws_invalid_argument(concat("RankDevice: Could not parse remote_device: \"", text,
                                       "\"; write rank:1/cpu, rank:1 or rank:0/cuda:1")));
  }
  EXPECT_THAT([] { return RankDevice(-1); }, throws_with("rank -1 given; ranks must be >= 0"));
  EXPECT_THAT([] { return RankDevice(0, ""); }, throws_with("device \"\" given"));
}

TEST(ShardMetadataTest, HasOneOffsetPerSizeAndNoneBelowZero) {
  EXPECT_EQ(concat(ShardMetadata({0, 2}, {4, 4}, "rank:1/cpu")), "[0, 4) x [2, 6) on rank:1/cpu");
  EXPECT_THAT(
      [] {
        return ShardMetadata({0}, {4, 4}, "rank:1/cpu");
      },
      throws_invalid_argument("ShardMetadata: offsets [0] and sizes [4,4] given; "
                              "shard_offsets and shard_sizes should have the same number of "
                              "elements"));
  EXPECT_THAT(
      [] { return ShardMetadata({-1}, {4}, "rank:1/cpu"); },
      throws_invalid_argument("ShardMetadata: offsets [-1] given; shard_offsets should be >=0"));
  EXPECT_THAT(
      [] { return ShardMetadata({0}, {-4}, "rank:1/cpu"); },
      throws_invalid_argument("ShardMetadata: sizes [-4] given; shard_sizes should be >= 0"));
  EXPECT_THAT(
      [] {
        return ShardMetadata({2}, {std::numeric_limits<std::int64_t>::max() - 1}, "rank:1/cpu");
      },
      throws_with("ShardMetadata: offset 2 and size 9223372036854775806 given, which end beyond"));
}

TEST(ChunkShardingSpecTest, PutsChunkIOnPlacementI) {
  const auto shards = build_metadata(rows({"rank:2/cpu", "rank:0/cpu", "rank:1/cpu"}), {7, 2});
  EXPECT_THAT(shards, ElementsAre(ShardMetadata({0, 0}, {3, 2}, "rank:2/cpu"),
                                  ShardMetadata({3, 0}, {3, 2}, "rank:0/cpu"),
                                  ShardMetadata({6, 0}, {1, 2}, "rank:1/cpu")));
}

TEST(ChunkShardingSpecTest, FiveOverFourEndsWithAnEmptyShard) {
  const auto shards = build_metadata(ChunkShardingSpec::over(0, {0, 1, 2, 3}), {5});
  EXPECT_THAT(
      shards,
      ElementsAre(ShardMetadata({0}, {2}, "rank:0/cpu"), ShardMetadata({2}, {2}, "rank:1/cpu"),
                  ShardMetadata({4}, {1}, "rank:2/cpu"), ShardMetadata({5}, {0}, "rank:3/cpu")));
  // They are shards like any others.
  EXPECT_EQ(build_metadata(EnumerableShardingSpec(shards), {5}), shards);
}

TEST(ChunkShardingSpecTest, CountsNegativeDimsFromTheEndAndMayNameARankTwice) {
  const auto shards = build_metadata(ChunkShardingSpec(-1, {"rank:1/cpu", "rank:1/cpu"}), {2, 4});
  EXPECT_THAT(shards, ElementsAre(ShardMetadata({0, 0}, {2, 2}, "rank:1/cpu"),
                                  ShardMetadata({0, 2}, {2, 2}, "rank:1/cpu")));
}

TEST(ChunkShardingSpecTest, RefusesDimsThatTheTensorDoesNotHave) {
  EXPECT_THAT(
      [] { return ChunkShardingSpec(0, {}); },
      throws_invalid_argument("ChunkShardingSpec: no placements given; give one for each chunk"));
  EXPECT_THAT(
      [] {
        return build_metadata(ChunkShardingSpec::over(2, {0}), {4, 4});
      },
      throws_invalid_argument("ChunkShardingSpec: Invalid sharding dim: 2 for a tensor of "
                              "shape [4,4]; allowed are -2 to 1"));
  EXPECT_THAT(
      [] {
        return build_metadata(ChunkShardingSpec::over(-3, {0}), {4, 4});
      },
      throws_with("Invalid sharding dim: -3"));
  EXPECT_THAT([] { return build_metadata(ChunkShardingSpec::over(0, {0}), {}); },
              throws_with("a tensor without dims cannot be cut"));
}

TEST(EnumerableShardingSpecTest, RefusesListsThatAreNoTiling) {
  EXPECT_THAT([] { return EnumerableShardingSpec({}); },
              throws_invalid_argument("EnumerableShardingSpec: Empty shard list provided"));
  EXPECT_THAT(([] {
                return EnumerableShardingSpec({ShardMetadata({0}, {4}, "rank:0/cpu"),
                                               ShardMetadata({0, 0}, {4, 4}, "rank:1/cpu")});
              }),
              throws_with("Found inconsistent ranks for shards: 1 and 2, of "));
  EXPECT_THAT(([] {
                return EnumerableShardingSpec(
                    {ShardMetadata({0}, {4}, "rank:0/cpu"), ShardMetadata({3}, {4}, "rank:1/cpu")});
              }),
              throws_invalid_argument("EnumerableShardingSpec: Shards [0, 4) on rank:0/cpu and "
                                      "[3, 7) on rank:1/cpu overlap"));
  const EnumerableShardingSpec half({ShardMetadata({0}, {4}, "rank:0/cpu")});
  EXPECT_THAT(
      [&] { return build_metadata(half, {8}); },
      throws_invalid_argument(
          "EnumerableShardingSpec: Total volume of shards: 4 does not match tensor volume: 8 "
          "of shape [8]; the shards must leave no gaps"));
  EXPECT_THAT([&] { return build_metadata(half, {3}); },
              throws_invalid_argument("EnumerableShardingSpec: shard [0, 4) on rank:0/cpu exceeds "
                                      "tensor dim 0 of shape [3]"));
  EXPECT_THAT(
      [&] {
        return build_metadata(half, {4, 1});
      },
      throws_with("Rank of tensor is 2, but shards rank is 1"));
}

TEST(ShardingSpecTest, PrintsAndCompares) {
  const ShardingSpec chunks = rows({"rank:0/cpu", "rank:1/cpu"});
  EXPECT_EQ(concat(chunks), "ChunkShardingSpec(dim=0, placements=[rank:0/cpu, rank:1/cpu])");
  const ShardingSpec boxes = EnumerableShardingSpec(
      {ShardMetadata({0}, {4}, "rank:0/cpu"), ShardMetadata({4}, {4}, "rank:1/cpu")});
  EXPECT_EQ(concat(boxes), "EnumerableShardingSpec([[0, 4) on rank:0/cpu, [4, 8) on rank:1/cpu])");
  EXPECT_EQ(chunks, ShardingSpec(rows({"rank:0/cpu", "rank:1/cpu"})));
  EXPECT_NE(chunks, ShardingSpec(rows({"rank:1/cpu", "rank:0/cpu"})));
  EXPECT_NE(chunks, boxes);
}

TEST(ShardingSpecTest, IsInferredFromShards) {
  // In any order; chunks are found along the dim that they cut.
  const ChunkShardingSpec columns(1, {"rank:2/cpu", "rank:0/cpu", "rank:1/cpu"});
  auto shards = build_metadata(columns, {4, 7});
  std::swap(shards[0], shards[2]);
  EXPECT_EQ(infer_spec(shards, {4, 7}), ShardingSpec(columns));
  const std::vector<ShardMetadata> uneven{ShardMetadata({0}, {1}, "rank:0/cpu"),
                                          ShardMetadata({1}, {3}, "rank:1/cpu")};
  EXPECT_EQ(infer_spec(uneven, {4}), ShardingSpec(EnumerableShardingSpec(uneven)));
  const std::vector<ShardMetadata> scalar{ShardMetadata({}, {}, "rank:1/cpu")};
  EXPECT_EQ(infer_spec(scalar, {}), ShardingSpec(EnumerableShardingSpec(scalar)));
}

ShardingSpec random_spec(Random& random, const Shape& shape) {
  std::vector<ShardMetadata> shards;
  for (const auto& [box, rank] : test::random_tiling(random, shape, random.between(0, 6), {0, 3})) {
    std::vector<std::int64_t> offsets;
    for (const auto& extent : box.dims) offsets.push_back(extent.begin);
    shards.emplace_back(offsets, box.shape(), RankDevice(rank, "cuda:1"));
  }
  if (shape.empty() || random.one_in(2)) return EnumerableShardingSpec(shards);
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(random.between(1, 6)));
  for (auto& rank : ranks) rank = random.between(0, 9);
  return ChunkShardingSpec::over(random.between(0, std::ssize(shape) - 1), ranks);
}

TEST(ShardingSpecTest, ComesBackFromItsBytes) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Shape shape = test::random_shape(random, {.max_dims = 3});
    const ShardingSpec spec = random_spec(random, shape);
    EXPECT_EQ(sharding_spec_from_bytes(to_bytes(spec)), spec);
    const ShardedTensorMetadata metadata{build_metadata(spec, shape),
                                         shape,
                                         {.dtype = at::kDouble, .requires_grad = random.one_in(2)}};
    EXPECT_EQ(metadata_from_bytes(to_bytes(metadata)), metadata);
  }
}

TEST(ShardingSpecTest, RefusesBytesOfAnotherKindAndBrokenOnes) {
  const std::string spec = to_bytes(ShardingSpec(rows({"rank:0/cpu", "rank:1/cpu"})));
  const std::string metadata =
      to_bytes(ShardedTensorMetadata{build_metadata(rows({"rank:0/cpu"}), {4}), {4}, {}});
  EXPECT_THAT([&] { return sharding_spec_from_bytes(metadata); },
              throws_invalid_argument("sharding_spec_from_bytes: the bytes given are not those of "
                                      "to_bytes: they begin with something else"));
  EXPECT_THAT([&] { return metadata_from_bytes(spec); }, throws_with("begin with something else"));
  EXPECT_THAT([&] { return sharding_spec_from_bytes(spec + "x"); },
              throws_with("1 bytes too many"));
  for (std::size_t length = 0; length < spec.size(); ++length) {
    EXPECT_THROW((void)sharding_spec_from_bytes(spec.substr(0, length)), InvalidArgument);
  }
  // Whatever is changed, it is refused or is another spec, and takes no memory that is not there.
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    std::string broken = random.one_in(2) ? spec : metadata;
    broken[static_cast<std::size_t>(random.between(0, std::ssize(broken) - 1))] =
        static_cast<char>(random.between(0, 255));
    try {
      (void)sharding_spec_from_bytes(broken);
      (void)metadata_from_bytes(broken);
    } catch (const InvalidArgument&) {
      continue;
    }
  }
}

TEST(ShardedTensorMetadataTest, Prints) {
  const ShardedTensorMetadata metadata{
      build_metadata(rows({"rank:0/cpu", "rank:1/cpu"}), {3, 2}), {3, 2}, {.requires_grad = true}};
  EXPECT_EQ(concat(metadata),
            "[3,2], float32, requires_grad\n"
            "  [0, 2) x [0, 2) on rank:0/cpu\n"
            "  [2, 3) x [0, 2) on rank:1/cpu");
  ShardedTensorMetadata other = metadata;
  other.properties.requires_grad = false;
  EXPECT_NE(metadata, other);
}

}  // namespace
}  // namespace tessera::sharded
