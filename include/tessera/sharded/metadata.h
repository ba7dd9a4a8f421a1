#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/Layout.h>
#include <c10/core/ScalarType.h>

#include "tessera/sharded/sharding_spec.h"

namespace tessera::sharded {

/// What all shards of a tensor have in common besides their values.
struct TensorProperties {
  at::ScalarType dtype = at::ScalarType::Float;
  at::Layout layout = at::kStrided;
  bool requires_grad = false;
  bool pin_memory = false;

  bool operator==(const TensorProperties&) const = default;
};

/// Prints `float32`, and behind it, with commas, what is not as usual: `requires_grad`, ....
std::ostream& operator<<(std::ostream& os, const TensorProperties& properties);

/// A sharded tensor without its values: the same on all ranks.
struct ShardedTensorMetadata {
  std::vector<ShardMetadata> shards;
  std::vector<std::int64_t> size;
  TensorProperties properties;

  bool operator==(const ShardedTensorMetadata&) const = default;
};

/// Prints the size and the properties, then one line per shard.
std::ostream& operator<<(std::ostream& os, const ShardedTensorMetadata& metadata);

/// The metadata as bytes, the same on every machine, and back. `metadata_from_bytes` throws
/// `InvalidArgument` for bytes that `to_bytes` did not write.
[[nodiscard]] std::string to_bytes(const ShardedTensorMetadata& metadata);
[[nodiscard]] ShardedTensorMetadata metadata_from_bytes(std::string_view bytes);

}  // namespace tessera::sharded
