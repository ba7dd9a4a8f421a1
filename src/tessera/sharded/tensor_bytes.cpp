#include <cstring>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "tessera/base/check.h"
#include "tessera/comm/exchange_boxes.h"
#include "tessera/comm/world.h"
#include "tessera/sharded/bytes.h"
#include "tessera/sharded/state.h"

namespace tessera::sharded {
namespace {

/// The first number of the form: what follows, and in which version.
constexpr std::int64_t kForm = 0x7453'0401;

std::string values_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg();
  std::string bytes(host.nbytes(), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), host.const_data_ptr(), bytes.size());
  return bytes;
}

/// What the bytes of one rank say.
struct Loaded {
  std::int64_t rank = -1;
  std::vector<std::int64_t> ranks;
  std::string spec;
  std::string metadata;
  std::vector<std::string> values;
};

Loaded read(std::string_view bytes) {
  detail::ByteReader reader(bytes, "load_sharded_tensor");
  if (reader.number() != kForm) reader.fail("they begin with something else");
  Loaded loaded;
  loaded.rank = reader.number();
  loaded.ranks = reader.numbers();
  loaded.spec = reader.text();
  loaded.metadata = reader.text();
  for (std::int64_t left = reader.count(8); left > 0; --left) {
    loaded.values.push_back(reader.text());
  }
  reader.finish();
  return loaded;
}

std::vector<at::Tensor> pieces_of(const Loaded& loaded, const ShardedTensorMetadata& metadata) {
  const auto options = detail::shard_options(metadata.properties, metadata.shards);
  const BoxMap boxes = box_map(metadata.shards, metadata.size);
  std::vector<at::Tensor> pieces;
  const auto held = boxes.held_by(loaded.rank);
  TESSERA_CHECK(held.size() == loaded.values.size(), "load_sharded_tensor: values of ",
                loaded.values.size(), " shards given for ", held.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    const at::Tensor host = at::empty(held[i].shape(), options.device(at::kCPU));
    TESSERA_CHECK(host.nbytes() == loaded.values[i].size(),
                  "load_sharded_tensor: ", loaded.values[i].size(), " bytes given for shard ",
                  held[i], ", which has ", host.nbytes());
    if (host.nbytes() > 0) {
      std::memcpy(host.mutable_data_ptr(), loaded.values[i].data(), host.nbytes());
    }
    pieces.push_back(host.to(options.device()));
  }
  return pieces;
}

}  // namespace

std::string to_bytes(const ShardedTensor& tensor) {
  detail::ByteWriter writer;
  writer.number(kForm).number(tensor.group().world().rank()).numbers(tensor.group().ranks());
  writer.text(to_bytes(tensor.sharding_spec())).text(to_bytes(tensor.metadata()));
  writer.number(std::ssize(tensor.local_shards()));
  for (const auto& shard : tensor.local_shards()) writer.text(values_of(shard.tensor));
  return writer.take();
}

ShardedTensor load_sharded_tensor(std::string_view bytes, const std::optional<Group>& its_group) {
  constexpr const char* kName = "load_sharded_tensor";
  const Group group = detail::group_or_current(its_group);
  const std::int64_t rank = group.world().rank();
  detail::Agreement agreement(kName, group);
  Loaded loaded;
  std::optional<ShardingSpec> spec;
  ShardedTensorMetadata metadata;
  std::vector<at::Tensor> pieces;
  agreement.require_no_throw([&] {
    loaded = read(bytes);
    TESSERA_CHECK(loaded.ranks == group.ranks(), kName, ": a tensor of the ranks [",
                  joined(loaded.ranks, ","), "] given for group ", group.name(), " of ranks [",
                  joined(group.ranks(), ","), "]; they must be the same");
    TESSERA_CHECK(loaded.rank == rank, kName, ": the bytes of rank ", loaded.rank,
                  " given on rank ", rank, "; every rank loads its own");
    spec = sharding_spec_from_bytes(loaded.spec);
    metadata = metadata_from_bytes(loaded.metadata);
    TESSERA_CHECK(metadata.shards == build_metadata(*spec, metadata.size), kName,
                  ": spec and shards do not fit together");
    pieces = pieces_of(loaded, metadata);
  });
  agreement.same("metadata", metadata);
  agreement.meet();
  return detail::make_sharded(group, *spec, std::move(metadata), std::move(pieces), true);
}

}  // namespace tessera::sharded
