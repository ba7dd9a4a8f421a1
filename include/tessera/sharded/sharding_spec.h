#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/layout/box_map.h"

/// Tensors held as a list of shards, and plans that shard modules; see `docs/sharded.md`.
namespace tessera::sharded {

/// Where a shard lives: a global rank and a device of it. Written `rank:1/cpu`, `rank:0/cuda:1`, or
/// `rank:1`, which is on cpu.
struct RankDevice {
  std::int64_t rank = 0;
  /// `cpu`, `cuda:1`, ...
  std::string device = "cpu";

  RankDevice(std::int64_t its_rank, std::string its_device = "cpu");
  /// Reads the written form; not explicit, so that a list of them can be written as strings. Throws
  /// `InvalidArgument` for any other text and for a negative rank.
  RankDevice(std::string_view text);  // NOLINT(google-explicit-constructor)
  RankDevice(const char* text) : RankDevice(std::string_view(text)) {}  // NOLINT

  /// `cpu` or `cuda`: without the index.
  [[nodiscard]] std::string device_type() const;
  bool operator==(const RankDevice&) const = default;
};

std::ostream& operator<<(std::ostream& os, const RankDevice& placement);

/// Which box of a tensor one shard is, and where it lives.
struct ShardMetadata {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;
  RankDevice placement;

  /// Throws `InvalidArgument` unless there is one offset per size, all are >= 0, and so are their sums.
  ShardMetadata(std::vector<std::int64_t> its_offsets, std::vector<std::int64_t> its_sizes,
                RankDevice its_placement);

  [[nodiscard]] Box box() const;
  bool operator==(const ShardMetadata&) const = default;
};

/// Prints `[0, 4) x [2, 6) on rank:1/cpu`.
std::ostream& operator<<(std::ostream& os, const ShardMetadata& shard);

/// One dim cut into as many chunks as there are placements; chunk i lives at `placements[i]`.
///
/// Chunks are cut as `chunk_extent` says: 5 rows over 4 placements are 2, 2, 1 and 0 rows, the empty
/// shard at the end. Placements may name ranks in any order, leave ranks out, and name a rank several
/// times, which then holds as many shards.
class ChunkShardingSpec {
 public:
  /// Negative dims count from the end of the tensor that is sharded. Throws `InvalidArgument` without
  /// placements.
  ChunkShardingSpec(std::int64_t dim, std::vector<RankDevice> placements);
  /// Chunk i on `ranks[i]`: `ChunkShardingSpec::over(0, group.ranks())`.
  [[nodiscard]] static ChunkShardingSpec over(std::int64_t dim,
                                              const std::vector<std::int64_t>& ranks,
                                              const std::string& device = "cpu");

  [[nodiscard]] std::int64_t dim() const { return dim_; }
  [[nodiscard]] const std::vector<RankDevice>& placements() const { return placements_; }
  bool operator==(const ChunkShardingSpec&) const = default;

 private:
  std::int64_t dim_;
  std::vector<RankDevice> placements_;
};

/// Every shard spelled out: any boxes that tile the tensor, on any ranks.
class EnumerableShardingSpec {
 public:
  /// Throws `InvalidArgument` for an empty list, shards with different numbers of dims, and shards
  /// that overlap. Gaps are found when the spec meets a tensor.
  explicit EnumerableShardingSpec(std::vector<ShardMetadata> shards);

  [[nodiscard]] const std::vector<ShardMetadata>& shards() const { return shards_; }
  bool operator==(const EnumerableShardingSpec&) const = default;

 private:
  std::vector<ShardMetadata> shards_;
};

/// How a tensor is cut into shards and where they live.
using ShardingSpec = std::variant<ChunkShardingSpec, EnumerableShardingSpec>;

/// `ChunkShardingSpec(dim=0, placements=[rank:0/cpu, rank:1/cpu])`, and
/// `EnumerableShardingSpec([[0, 4) on rank:0/cpu, [4, 8) on rank:1/cpu])`.
std::ostream& operator<<(std::ostream& os, const ChunkShardingSpec& spec);
std::ostream& operator<<(std::ostream& os, const EnumerableShardingSpec& spec);
std::ostream& operator<<(std::ostream& os, const ShardingSpec& spec);

/// Returns the shards of a tensor of `shape`, in the order of the spec's chunks or shards.
///
/// Throws `InvalidArgument` for a chunked dim that the tensor does not have, and for enumerated shards
/// that do not have its number of dims, reach outside of it or leave gaps.
[[nodiscard]] std::vector<ShardMetadata> build_metadata(const ShardingSpec& spec,
                                                        const Shape& shape);

/// Returns the simplest spec that has these shards of a tensor of `shape`: chunks where they are
/// chunks, in their order along the tensor, otherwise the list itself.
[[nodiscard]] ShardingSpec infer_spec(const std::vector<ShardMetadata>& shards, const Shape& shape);

/// Returns the shards as a map of boxes.
[[nodiscard]] BoxMap box_map(const std::vector<ShardMetadata>& shards, const Shape& shape);

/// Returns a layout that gives every rank what the spec does, if there is one: that of chunks which are
/// all on different ranks, or of shards that form a grid (see `tessera::find_layout`). The mesh has the
/// placements' ranks in their order. Throws `InvalidArgument` as `build_metadata`.
[[nodiscard]] std::optional<Layout> find_layout(const ShardingSpec& spec, const Shape& shape);

/// The spec as bytes, the same on every machine, and back. `sharding_spec_from_bytes` throws
/// `InvalidArgument` for bytes that `to_bytes` did not write.
[[nodiscard]] std::string to_bytes(const ShardingSpec& spec);
[[nodiscard]] ShardingSpec sharding_spec_from_bytes(std::string_view bytes);

}  // namespace tessera::sharded
