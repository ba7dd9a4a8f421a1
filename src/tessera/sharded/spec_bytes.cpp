#include <ostream>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/sharded/bytes.h"
#include "tessera/sharded/metadata.h"
#include "tessera/sharded/sharding_spec.h"

namespace tessera::sharded {
namespace {

using detail::ByteReader;
using detail::ByteWriter;

/// The first number of every byte form: what follows, and in which version of the form.
constexpr std::int64_t kChunkForm = 0x7453'0101;
constexpr std::int64_t kEnumerableForm = 0x7453'0201;
constexpr std::int64_t kMetadataForm = 0x7453'0301;

/// No placement and no shard takes less: a number or two, and lengths.
constexpr std::int64_t kLeastBytes = 16;

void write(ByteWriter& writer, const RankDevice& placement) {
  writer.number(placement.rank).text(placement.device);
}

RankDevice read_placement(ByteReader& reader) {
  const std::int64_t rank = reader.number();
  return RankDevice(rank, reader.text());
}

void write(ByteWriter& writer, const std::vector<ShardMetadata>& shards) {
  writer.number(std::ssize(shards));
  for (const auto& shard : shards) {
    writer.numbers(shard.offsets).numbers(shard.sizes);
    write(writer, shard.placement);
  }
}

std::vector<ShardMetadata> read_shards(ByteReader& reader) {
  std::vector<ShardMetadata> shards;
  for (std::int64_t left = reader.count(kLeastBytes); left > 0; --left) {
    auto offsets = reader.numbers();
    auto sizes = reader.numbers();
    auto placement = read_placement(reader);
    shards.emplace_back(std::move(offsets), std::move(sizes), std::move(placement));
  }
  return shards;
}

template <typename Enum, Enum End>
Enum read_enum(ByteReader& reader) {
  const std::int64_t value = reader.number();
  if (value < 0 || value >= static_cast<std::int64_t>(End)) {
    reader.fail(concat("a property of ", value));
  }
  return static_cast<Enum>(value);
}

ShardingSpec read_chunk_spec(ByteReader& reader) {
  const std::int64_t dim = reader.number();
  std::vector<RankDevice> placements;
  for (std::int64_t left = reader.count(kLeastBytes); left > 0; --left) {
    placements.push_back(read_placement(reader));
  }
  return ChunkShardingSpec(dim, std::move(placements));
}

}  // namespace

std::string to_bytes(const ShardingSpec& spec) {
  ByteWriter writer;
  if (const auto* chunked = std::get_if<ChunkShardingSpec>(&spec)) {
    writer.number(kChunkForm).number(chunked->dim()).number(std::ssize(chunked->placements()));
    for (const auto& placement : chunked->placements()) write(writer, placement);
  } else {
    writer.number(kEnumerableForm);
    write(writer, std::get<EnumerableShardingSpec>(spec).shards());
  }
  return writer.take();
}

ShardingSpec sharding_spec_from_bytes(std::string_view bytes) {
  ByteReader reader(bytes, "sharding_spec_from_bytes");
  const std::int64_t form = reader.number();
  if (form != kChunkForm && form != kEnumerableForm) reader.fail("they begin with something else");
  ShardingSpec spec = form == kChunkForm
                          ? read_chunk_spec(reader)
                          : ShardingSpec(EnumerableShardingSpec(read_shards(reader)));
  reader.finish();
  return spec;
}

std::string to_bytes(const ShardedTensorMetadata& metadata) {
  ByteWriter writer;
  writer.number(kMetadataForm).numbers(metadata.size);
  writer.number(static_cast<std::int64_t>(metadata.properties.dtype));
  writer.number(static_cast<std::int64_t>(metadata.properties.layout));
  writer.number(metadata.properties.requires_grad ? 1 : 0);
  writer.number(metadata.properties.pin_memory ? 1 : 0);
  write(writer, metadata.shards);
  return writer.take();
}

ShardedTensorMetadata metadata_from_bytes(std::string_view bytes) {
  ByteReader reader(bytes, "metadata_from_bytes");
  if (reader.number() != kMetadataForm) reader.fail("they begin with something else");
  ShardedTensorMetadata metadata;
  metadata.size = reader.numbers();
  metadata.properties.dtype = read_enum<at::ScalarType, at::ScalarType::Undefined>(reader);
  metadata.properties.layout = read_enum<at::Layout, at::Layout::NumOptions>(reader);
  metadata.properties.requires_grad = reader.number() != 0;
  metadata.properties.pin_memory = reader.number() != 0;
  metadata.shards = read_shards(reader);
  reader.finish();
  return metadata;
}

std::ostream& operator<<(std::ostream& os, const TensorProperties& properties) {
  os << c10::getDtypeNames(properties.dtype).first;
  if (properties.layout != at::kStrided) os << ", " << properties.layout;
  if (properties.requires_grad) os << ", requires_grad";
  if (properties.pin_memory) os << ", pin_memory";
  return os;
}

std::ostream& operator<<(std::ostream& os, const ShardedTensorMetadata& metadata) {
  os << '[' << joined(metadata.size, ",") << "], " << metadata.properties;
  for (const auto& shard : metadata.shards) os << "\n  " << shard;
  return os;
}

}  // namespace tessera::sharded
