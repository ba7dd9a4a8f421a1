#include <algorithm>
#include <array>
#include <utility>

#include "tessera/base/check.h"
#include "tessera/comm/exchange_boxes.h"
#include "tessera/comm/world.h"
#include "tessera/sharded/state.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::sharded {
namespace {

using detail::Agreement;

std::string sizes_text(at::IntArrayRef sizes) { return concat('[', joined(sizes, ","), ']'); }

TensorProperties properties_of(const at::Tensor& tensor) {
  return {.dtype = tensor.scalar_type(),
          .layout = tensor.layout(),
          .requires_grad = tensor.requires_grad(),
          .pin_memory = tensor.layout() == at::kStrided && tensor.is_pinned()};
}

/// A property's name and value.
using Property = std::pair<const char*, std::string>;

std::array<Property, 4> list_of(const TensorProperties& properties) {
  const auto yes_or_no = [](bool value) { return value ? "true" : "false"; };
  return {Property("dtype", c10::getDtypeNames(properties.dtype).first),
          Property("layout", concat(properties.layout)),
          Property("requires_grad", yes_or_no(properties.requires_grad)),
          Property("pin_memory", yes_or_no(properties.pin_memory))};
}

void same_properties(Agreement& agreement, const TensorProperties& properties) {
  for (const auto& [name, value] : list_of(properties)) agreement.same(name, value);
}

/// Members without shards have no properties to compare.
void any_properties(Agreement& agreement) {
  for (const auto& [name, value] : list_of({})) agreement.same(name, "");
}

/// All shards of one rank must be alike.
void require_alike(Agreement& agreement, const TensorProperties& one, const TensorProperties& other,
                   std::int64_t rank) {
  const auto ones = list_of(one);
  const auto others = list_of(other);
  for (std::size_t i = 0; i < ones.size(); ++i) {
    const auto& [name, value] = ones[i];
    agreement.require(value == others[i].second, "Local shards' tensor ", name,
                      " property need to be the same on rank:", rank,
                      "! Found one local shard tensor ", name, '=', value,
                      ", the other local shard tensor ", name, '=', others[i].second);
  }
}

/// A shard must be what its metadata say, and this rank's.
void require_shard(Agreement& agreement, const LocalShard& shard, std::int64_t rank) {
  const auto& [tensor, metadata] = shard;
  if (!agreement.require(tensor.defined(), "an undefined tensor given as shard ", metadata)) return;
  if (!agreement.require(!is_dtensor(tensor), "a DTensor given as shard ", metadata,
                         "; give the plain tensor that this rank holds")) {
    return;
  }
  agreement.require(tensor.sizes() == at::IntArrayRef(metadata.sizes),
                    "Shard tensor size does not match with metadata.shard_lengths! The tensor is ",
                    sizes_text(tensor.sizes()), ", the shard ", metadata);
  agreement.require(metadata.placement.rank == rank,
                    "Local shard metadata's rank does not match with the rank in its process "
                    "group! Shard ",
                    metadata, " was given on rank ", rank, "; a rank passes its own shards");
  agreement.require(metadata.placement.device_type() == detail::device_type_of(tensor),
                    "Local shard tensor device does not match with local Shard's placement! The "
                    "tensor is on ",
                    tensor.device(), ", the shard is ", metadata);
}

/// The tensors in the order of the metadata that name this rank.
std::vector<at::Tensor> in_order(const std::vector<ShardMetadata>& metadata,
                                 std::vector<LocalShard> shards, std::int64_t rank) {
  std::vector<at::Tensor> ordered;
  for (const auto& wanted : metadata) {
    if (wanted.placement.rank != rank) continue;
    const auto found = std::find_if(shards.begin(), shards.end(), [&](const LocalShard& shard) {
      return shard.metadata == wanted;
    });
    TESSERA_INTERNAL_CHECK(found != shards.end(), "shard ", wanted, " is not there");
    ordered.push_back(std::move(found->tensor));
    shards.erase(found);
  }
  return ordered;
}

}  // namespace

ShardedTensor shard_tensor(const at::Tensor& tensor, const ShardingSpec& spec,
                           std::int64_t src_rank, const std::optional<Group>& its_group) {
  constexpr const char* kName = "shard_tensor";
  const Group group = detail::group_or_current(its_group);
  Agreement agreement(kName, group);
  ShardedTensorMetadata metadata;
  if (agreement.require(tensor.defined(), "an undefined tensor given") &&
      agreement.require(!is_dtensor(tensor), "a DTensor given; use from_dtensor")) {
    metadata.size = tensor.sizes().vec();
    metadata.properties = properties_of(tensor);
    agreement.require(tensor.layout() == at::kStrided,
                      "Only torch.strided layout is currently supported, but found ",
                      tensor.layout());
    agreement.require(tensor.layout() != at::kStrided || tensor.is_contiguous(),
                      "input tensor is not a contiguous Tensor: sizes ", sizes_text(tensor.sizes()),
                      ", strides ",
                      tensor.layout() == at::kStrided ? sizes_text(tensor.strides()) : "",
                      "; pass tensor.contiguous()");
    agreement.require(tensor.is_leaf(),
                      "a tensor with history given; pass tensor.detach(), shards are leaves");
    agreement.require_no_throw([&] { detail::check_member(kName, "src_rank", src_rank, group); });
    agreement.require_no_throw([&] {
      metadata.shards =
          detail::checked_shards(kName, spec, metadata.size, group, detail::device_type_of(tensor));
    });
  }
  agreement.same("src_rank", src_rank);
  agreement.same("sharding_spec", spec);
  agreement.same("size", sizes_text(metadata.size));
  same_properties(agreement, metadata.properties);
  agreement.meet();
  const std::int64_t rank = group.world().rank();
  const auto from =
      BoxMap::on_one_rank(metadata.size, group.ranks()[static_cast<std::size_t>(src_rank)]);
  const BoxMap to = box_map(metadata.shards, metadata.size);
  const auto options = detail::shard_options(metadata.properties, metadata.shards);
  auto pieces = tessera::detail::new_pieces(to, rank, options);
  std::vector<at::Tensor> source;
  if (group.index() == src_rank) source.push_back(tensor);
  tessera::detail::exchange_boxes({from, to, group, kName}, pieces, source, options);
  return detail::make_sharded(group, spec, std::move(metadata), std::move(pieces), true);
}

ShardedTensor init_from_local_shards(const std::vector<LocalShard>& shards,
                                     const std::vector<std::int64_t>& size,
                                     const std::optional<Group>& its_group) {
  constexpr const char* kName = "init_from_local_shards";
  const Group group = detail::group_or_current(its_group);
  const std::int64_t rank = group.world().rank();
  Agreement agreement(kName, group, Agreement::Wording::from_different_ranks);
  agreement.same("global_size", sizes_text(size));
  for (const auto& shard : shards) require_shard(agreement, shard, rank);
  ShardedTensorMetadata metadata{{}, size, {}};
  if (!shards.empty() && agreement.is_valid()) {
    metadata.properties = properties_of(shards.front().tensor);
    same_properties(agreement, metadata.properties);
    for (const auto& shard : shards) {
      require_alike(agreement, metadata.properties, properties_of(shard.tensor), rank);
      metadata.shards.push_back(shard.metadata);
    }
  } else {
    any_properties(agreement);
  }
  const auto all = agreement.share(to_bytes(metadata));
  metadata.shards.clear();
  for (const auto& bytes : all) {
    auto others = metadata_from_bytes(bytes);
    if (others.shards.empty()) continue;
    metadata.properties = others.properties;
    metadata.shards.insert(metadata.shards.end(), others.shards.begin(), others.shards.end());
  }
  TESSERA_CHECK(!metadata.shards.empty(), kName,
                ": ShardedTensor have no local shards on all ranks of group ", group.name(),
                "; at least one rank must have one");
  TESSERA_CHECK(metadata.properties.layout == at::kStrided, kName,
                ": Only torch.strided layout is currently supported, but found ",
                metadata.properties.layout);
  // Overlaps and gaps are found here, on all ranks alike.
  (void)build_metadata(EnumerableShardingSpec(metadata.shards), size);
  const ShardingSpec spec = infer_spec(metadata.shards, size);
  metadata.shards = detail::checked_shards(kName, spec, size, group,
                                           metadata.shards.front().placement.device_type());
  auto pieces = in_order(metadata.shards, shards, rank);
  return detail::make_sharded(group, spec, std::move(metadata), std::move(pieces), false);
}

}  // namespace tessera::sharded
