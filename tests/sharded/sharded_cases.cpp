#include "sharded/sharded_cases.h"

#include <numeric>

#include <gtest/gtest.h>

#include "support/random_boxes.h"
#include "tessera/comm/device_mesh.h"
#include "tessera/comm/traffic.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::test {
namespace {

using namespace sharded;

/// What `rank` needs of `to` and does not hold of `from`, in elements.
std::int64_t bound_of(const BoxMap& from, const BoxMap& to, std::int64_t rank) {
  std::vector<bool> held(static_cast<std::size_t>(whole_box(from.shape()).numel()), false);
  for (const auto& box : from.held_by(rank)) {
    for_each_element(from.shape(), box, [&](std::int64_t index, std::int64_t) {
      held[static_cast<std::size_t>(index)] = true;
    });
  }
  std::int64_t bound = 0;
  for (const auto& box : to.held_by(rank)) {
    for_each_element(to.shape(), box, [&](std::int64_t index, std::int64_t) {
      if (!held[static_cast<std::size_t>(index)]) ++bound;
    });
  }
  return bound;
}

BoxMap boxes_of(const ShardedTensor& tensor) {
  return box_map(tensor.metadata().shards, tensor.sizes());
}

}  // namespace

at::Tensor counted(const std::vector<std::int64_t>& sizes, at::ScalarType dtype) {
  const std::int64_t numel = whole_box(sizes).numel();
  return torch::arange(1, numel + 1).to(dtype).reshape(sizes);
}

ShardingSpec random_spec(Random& random, const Shape& shape,
                         const std::vector<std::int64_t>& ranks) {
  if (shape.empty() || random.one_in(2)) {
    std::vector<ShardMetadata> shards;
    for (const auto& [box, rank] : random_tiling(random, shape, random.between(0, 6), ranks)) {
      std::vector<std::int64_t> offsets;
      for (const auto& extent : box.dims) offsets.push_back(extent.begin);
      shards.emplace_back(offsets, box.shape(), RankDevice(rank));
    }
    return EnumerableShardingSpec(shards);
  }
  std::vector<std::int64_t> chosen = ranks;
  random.shuffle(chosen);
  if (random.one_in(2)) {  // Fewer or more chunks than ranks.
    chosen.resize(static_cast<std::size_t>(random.between(1, 2 * std::ssize(ranks))));
    for (auto& rank : chosen) rank = random.pick(ranks);
  }
  return ChunkShardingSpec::over(random.between(0, std::ssize(shape) - 1), chosen);
}

at::Tensor slice_of(const at::Tensor& whole, const ShardMetadata& shard) {
  at::Tensor slice = whole;
  for (std::size_t d = 0; d < shard.sizes.size(); ++d) {
    slice = slice.narrow(static_cast<std::int64_t>(d), shard.offsets[d], shard.sizes[d]);
  }
  return slice;
}

void expect_shards(const ShardedTensor& tensor, const at::Tensor& whole) {
  const std::int64_t rank = tensor.group().world().rank();
  std::vector<ShardMetadata> own;
  for (const auto& shard : tensor.metadata().shards) {
    if (shard.placement.rank == rank) own.push_back(shard);
  }
  ASSERT_EQ(tensor.local_shards().size(), own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const LocalShard& shard = tensor.local_shards()[i];
    EXPECT_EQ(shard.metadata, own[i]);
    EXPECT_TRUE(torch::equal(shard.tensor.detach(), slice_of(whole, own[i]))) << own[i] << "\n"
                                                                              << shard.tensor;
  }
}

void check_random_resharding(const Group& group, std::uint64_t first_seed, std::uint64_t count) {
  const std::int64_t rank = group.world().rank();
  const auto ranks = group.ranks();
  for (std::uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 8});
    const auto dtype = random.pick(std::vector<at::ScalarType>{at::kFloat, at::kDouble, at::kLong});
    const auto first = random_spec(random, shape, ranks);
    const auto second = random_spec(random, shape, ranks);
    const std::int64_t root = random.between(0, group.size() - 1);
    const BoxMap at_root = BoxMap::on_one_rank(shape, ranks[static_cast<std::size_t>(root)]);
    const auto element = static_cast<std::int64_t>(c10::elementSize(dtype));
    const at::Tensor whole = counted(shape, dtype);
    // The values of the others do not matter.
    const at::Tensor given = group.index() == root ? whole : torch::zeros_like(whole);

    CommDebugMode traffic;
    std::optional<ShardedTensor> made;
    {
      const auto scope = traffic.record();
      made = shard_tensor(given, first, root, group);
    }
    const ShardedTensor tensor = *made;
    expect_shards(tensor, whole);
    EXPECT_EQ(tensor.sharding_spec(), first);
    EXPECT_EQ(traffic.received_bytes(), bound_of(at_root, boxes_of(tensor), rank) * element);

    traffic.clear();
    ShardedTensor moved = tensor;
    {
      const auto scope = traffic.record();
      moved = tensor.reshard(second);
    }
    expect_shards(moved, whole);
    expect_shards(tensor, whole);
    const BoxMap to = boxes_of(moved);
    EXPECT_EQ(traffic.received_bytes(), bound_of(boxes_of(tensor), to, rank) * element);
    EXPECT_LE(traffic.total_count(), 1);
    EXPECT_EQ(traffic.total_count(), traffic.count("all_to_all_single"));

    traffic.clear();
    at::Tensor gathered;
    {
      const auto scope = traffic.record();
      gathered = moved.gather(root);
    }
    EXPECT_EQ(gathered.defined(), group.index() == root);
    if (gathered.defined()) {
      EXPECT_TRUE(torch::equal(gathered, whole));
    }
    EXPECT_EQ(traffic.received_bytes(), bound_of(to, at_root, rank) * element);
  }
}

void check_sub_groups(World& world, std::uint64_t first_seed, std::uint64_t count) {
  for (std::uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    auto ranks = world.group().ranks();
    random.shuffle(ranks);
    const auto middle = ranks.begin() + random.between(1, world.size() - 1);
    const std::vector<std::int64_t> one(ranks.begin(), middle);
    const std::vector<std::int64_t> other(middle, ranks.end());
    const bool in_one = std::count(one.begin(), one.end(), world.rank()) > 0;
    // Different tensors at the same time.
    check_random_resharding(world.group(in_one ? one : other), in_one ? seed : seed + 500, 3);
  }
}

void check_random_dtensors(World& world, std::uint64_t first_seed, std::uint64_t count) {
  int shared = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Shape shape = random_shape(random, {.max_dims = 3, .max_size = 8});
    const at::Tensor whole = counted(shape);
    const auto tensor = shard_tensor(whole, random_spec(random, shape, world.group().ranks()));
    CommDebugMode traffic;
    if (const auto layout = tensor.layout()) {
      ++shared;
      const auto scope = traffic.record();
      const at::Tensor x = tensor.to_dtensor();
      EXPECT_EQ(layout_of(x), *layout);
      EXPECT_EQ(traffic.total_count(), 0);
      if (!tensor.local_shards().empty()) {
        EXPECT_TRUE(to_local(x).is_alias_of(tensor.local_tensor()));
      }
      const auto back = from_dtensor(x);
      EXPECT_EQ(traffic.total_count(), 0);
      expect_shards(back, whole);
    }
    const DeviceMesh mesh("cpu", MeshShape({world.size()}), world);
    const auto placements = random_placements(random, 1, std::ssize(shape));
    traffic.clear();
    at::Tensor moved;
    {
      const auto scope = traffic.record();
      moved = tensor.to_dtensor(mesh, placements);
    }
    const Layout target(mesh.shape(), placements, shape);
    const std::int64_t lacking = bound_of(boxes_of(tensor), BoxMap::of(target), world.rank());
    EXPECT_EQ(traffic.received_bytes(), lacking * 4);
    EXPECT_EQ(placements_of(moved), target.placements());
    EXPECT_TRUE(torch::equal(full_tensor(moved), whole));
    const auto spec = random_spec(random, shape, world.group().ranks());
    traffic.clear();
    std::optional<ShardedTensor> back;
    {
      const auto scope = traffic.record();
      back = from_dtensor(moved, spec);
    }
    expect_shards(*back, whole);
    EXPECT_EQ(traffic.received_bytes(),
              bound_of(BoxMap::of(target), boxes_of(*back), world.rank()) * 4);
  }
  EXPECT_GT(shared, static_cast<int>(count / 10));
}

}  // namespace tessera::test
