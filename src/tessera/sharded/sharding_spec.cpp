#include "tessera/sharded/sharding_spec.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <ostream>
#include <utility>

#include "tessera/base/check.h"

namespace tessera::sharded {
namespace {

bool is_device(std::string_view text) {
  return !text.empty() && text.front() != ':' && text.back() != ':' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == ':' || c == '_';
         });
}

std::vector<OwnedBox> owned_boxes(const std::vector<ShardMetadata>& shards) {
  std::vector<OwnedBox> boxes;
  boxes.reserve(shards.size());
  for (const auto& shard : shards) boxes.push_back({shard.box(), shard.placement.rank});
  return boxes;
}

std::vector<ShardMetadata> chunks(const ChunkShardingSpec& spec, const Shape& shape) {
  const std::int64_t ndim = std::ssize(shape);
  const std::int64_t dim = spec.dim() < 0 ? spec.dim() + ndim : spec.dim();
  TESSERA_CHECK(dim >= 0 && dim < ndim, "ChunkShardingSpec: Invalid sharding dim: ", spec.dim(),
                " for a tensor of shape [", joined(shape, ","), "]; allowed are ", -ndim, " to ",
                ndim - 1, ndim == 0 ? ", so none: a tensor without dims cannot be cut" : "");
  std::vector<ShardMetadata> shards;
  const std::int64_t count = std::ssize(spec.placements());
  for (std::int64_t i = 0; i < count; ++i) {
    const Extent extent = chunk_extent(shape[static_cast<std::size_t>(dim)], count, i);
    std::vector<std::int64_t> offsets(shape.size(), 0);
    std::vector<std::int64_t> sizes = shape;
    offsets[static_cast<std::size_t>(dim)] = extent.begin;
    sizes[static_cast<std::size_t>(dim)] = extent.size;
    shards.emplace_back(std::move(offsets), std::move(sizes),
                        spec.placements()[static_cast<std::size_t>(i)]);
  }
  return shards;
}

std::vector<ShardMetadata> enumerated(const EnumerableShardingSpec& spec, const Shape& shape) {
  std::int64_t volume = 0;
  for (const auto& shard : spec.shards()) {
    TESSERA_CHECK(shard.sizes.size() == shape.size(), "EnumerableShardingSpec: shard ", shard,
                  " given for shape [", joined(shape, ","), "]: Rank of tensor is ", shape.size(),
                  ", but shards rank is ", shard.sizes.size());
    for (std::size_t d = 0; d < shape.size(); ++d) {
      TESSERA_CHECK(shard.offsets[d] <= shape[d] && shard.sizes[d] <= shape[d] - shard.offsets[d],
                    "EnumerableShardingSpec: shard ", shard, " exceeds tensor dim ", d,
                    " of shape [", joined(shape, ","), "]");
    }
    volume += shard.box().numel();
  }
  const std::int64_t numel = whole_box(shape).numel();
  TESSERA_CHECK(volume == numel, "EnumerableShardingSpec: Total volume of shards: ", volume,
                " does not match tensor volume: ", numel, " of shape [", joined(shape, ","),
                "]; the shards must leave no gaps");
  return spec.shards();
}

/// The chunk spec along `dim` with the shards in ascending order, whether it fits or not.
ChunkShardingSpec chunked_along(std::size_t dim, std::vector<ShardMetadata> shards) {
  std::stable_sort(shards.begin(), shards.end(), [&](const auto& a, const auto& b) {
    return std::pair(a.offsets[dim], -a.sizes[dim]) < std::pair(b.offsets[dim], -b.sizes[dim]);
  });
  std::vector<RankDevice> placements;
  placements.reserve(shards.size());
  for (auto& shard : shards) placements.push_back(std::move(shard.placement));
  return {static_cast<std::int64_t>(dim), std::move(placements)};
}

/// True when both are the same shards, in any order.
bool is_same(std::vector<ShardMetadata> a, std::vector<ShardMetadata> b) {
  return a.size() == b.size() && std::is_permutation(a.begin(), a.end(), b.begin());
}

}  // namespace

RankDevice::RankDevice(std::int64_t its_rank, std::string its_device)
    : rank(its_rank), device(std::move(its_device)) {
  TESSERA_CHECK(rank >= 0, "RankDevice: rank ", rank, " given; ranks must be >= 0");
  TESSERA_CHECK(is_device(device), "RankDevice: device \"", device,
                "\" given; write cpu, cuda:0, ...");
}

RankDevice::RankDevice(std::string_view text) {
  constexpr std::string_view kPrefix = "rank:";
  const std::size_t slash = text.find('/');
  const bool names_device = slash != std::string_view::npos;
  const char* end = text.data() + std::min(slash, text.size());
  const char* begin = text.data() + std::min(kPrefix.size(), text.size());
  const auto number = std::from_chars(begin, end, rank);
  TESSERA_CHECK(text.starts_with(kPrefix) && begin < end && *begin != '-' &&
                    number.ec == std::errc() && number.ptr == end &&
                    (!names_device || is_device(text.substr(slash + 1))),
                "RankDevice: Could not parse remote_device: \"", text,
                "\"; write rank:1/cpu, rank:1 or rank:0/cuda:1");
  if (names_device) device = text.substr(slash + 1);
}

std::string RankDevice::device_type() const { return device.substr(0, device.find(':')); }

ShardMetadata::ShardMetadata(std::vector<std::int64_t> its_offsets,
                             std::vector<std::int64_t> its_sizes, RankDevice its_placement)
    : offsets(std::move(its_offsets)),
      sizes(std::move(its_sizes)),
      placement(std::move(its_placement)) {
  TESSERA_CHECK(offsets.size() == sizes.size(), "ShardMetadata: offsets [", joined(offsets, ","),
                "] and sizes [", joined(sizes, ","),
                "] given; shard_offsets and shard_sizes should have the same number of elements");
  for (const auto offset : offsets) {
    TESSERA_CHECK(offset >= 0, "ShardMetadata: offsets [", joined(offsets, ","),
                  "] given; shard_offsets should be >=0");
  }
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    TESSERA_CHECK(sizes[d] >= 0, "ShardMetadata: sizes [", joined(sizes, ","),
                  "] given; shard_sizes should be >= 0");
    TESSERA_CHECK(sizes[d] <= kMost - offsets[d], "ShardMetadata: offset ", offsets[d],
                  " and size ", sizes[d], " given, which end beyond ", kMost);
  }
}

Box ShardMetadata::box() const {
  Box box;
  for (std::size_t d = 0; d < sizes.size(); ++d) box.dims.push_back({offsets[d], sizes[d]});
  return box;
}

ChunkShardingSpec::ChunkShardingSpec(std::int64_t dim, std::vector<RankDevice> placements)
    : dim_(dim), placements_(std::move(placements)) {
  TESSERA_CHECK(!placements_.empty(),
                "ChunkShardingSpec: no placements given; give one for each chunk");
}

ChunkShardingSpec ChunkShardingSpec::over(std::int64_t dim, const std::vector<std::int64_t>& ranks,
                                          const std::string& device) {
  std::vector<RankDevice> placements;
  placements.reserve(ranks.size());
  for (const auto rank : ranks) placements.emplace_back(rank, device);
  return {dim, std::move(placements)};
}

EnumerableShardingSpec::EnumerableShardingSpec(std::vector<ShardMetadata> shards)
    : shards_(std::move(shards)) {
  TESSERA_CHECK(!shards_.empty(), "EnumerableShardingSpec: Empty shard list provided");
  for (const auto& shard : shards_) {
    TESSERA_CHECK(shard.sizes.size() == shards_.front().sizes.size(),
                  "EnumerableShardingSpec: Found inconsistent ranks for shards: ",
                  shards_.front().sizes.size(), " and ", shard.sizes.size(), ", of ",
                  shards_.front(), " and ", shard, "; all must have the tensor's number of dims");
  }
  if (const auto overlap = find_overlap(owned_boxes(shards_))) {
    TESSERA_CHECK(false, "EnumerableShardingSpec: Shards ", shards_[overlap->first], " and ",
                  shards_[overlap->second], " overlap");
  }
}

std::ostream& operator<<(std::ostream& os, const RankDevice& placement) {
  return os << "rank:" << placement.rank << '/' << placement.device;
}

std::ostream& operator<<(std::ostream& os, const ShardMetadata& shard) {
  return os << shard.box() << " on " << shard.placement;
}

std::ostream& operator<<(std::ostream& os, const ChunkShardingSpec& spec) {
  return os << "ChunkShardingSpec(dim=" << spec.dim() << ", placements=["
            << joined(spec.placements()) << "])";
}

std::ostream& operator<<(std::ostream& os, const EnumerableShardingSpec& spec) {
  return os << "EnumerableShardingSpec([" << joined(spec.shards()) << "])";
}

std::ostream& operator<<(std::ostream& os, const ShardingSpec& spec) {
  return std::visit([&](const auto& kind) -> std::ostream& { return os << kind; }, spec);
}

std::vector<ShardMetadata> build_metadata(const ShardingSpec& spec, const Shape& shape) {
  if (const auto* chunked = std::get_if<ChunkShardingSpec>(&spec)) return chunks(*chunked, shape);
  return enumerated(std::get<EnumerableShardingSpec>(spec), shape);
}

ShardingSpec infer_spec(const std::vector<ShardMetadata>& shards, const Shape& shape) {
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const auto spec = chunked_along(dim, shards);
    if (is_same(chunks(spec, shape), shards)) return spec;
  }
  return EnumerableShardingSpec(shards);
}

std::optional<Layout> find_layout(const ShardingSpec& spec, const Shape& shape) {
  const BoxMap boxes = box_map(build_metadata(spec, shape), shape);
  const auto* chunked = std::get_if<ChunkShardingSpec>(&spec);
  if (chunked == nullptr || boxes.most_pieces() > 1) return tessera::find_layout(boxes);
  std::vector<std::int64_t> ranks;
  for (const auto& placement : chunked->placements()) ranks.push_back(placement.rank);
  const auto count = static_cast<std::int64_t>(ranks.size());
  return Layout(MeshShape({count}, {}, std::move(ranks)), {Shard(chunked->dim())}, shape);
}

BoxMap box_map(const std::vector<ShardMetadata>& shards, const Shape& shape) {
  return BoxMap(shape, owned_boxes(shards));
}

}  // namespace tessera::sharded
