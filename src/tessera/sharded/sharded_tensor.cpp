#include "tessera/sharded/sharded_tensor.h"

#include <algorithm>
#include <ostream>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

#include "tessera/base/check.h"
#include "tessera/comm/exchange_boxes.h"
#include "tessera/comm/large_memory.h"
#include "tessera/comm/world.h"
#include "tessera/sharded/state.h"
#include "tessera/tensor/dtensor.h"

namespace tessera::sharded {
namespace detail {

void check_member(const std::string& function, const char* what, std::int64_t member,
                  const Group& group) {
  TESSERA_CHECK(member >= 0 && member < group.size(), function, ": ", what, '=', member,
                " given for group ", group.name(), " of ranks [", joined(group.ranks(), ","),
                "]; it is a place in the group, 0 to ", group.size() - 1);
}

std::vector<ShardMetadata> checked_shards(const std::string& function, const ShardingSpec& spec,
                                          const Shape& shape, const Group& group,
                                          const std::string& device_type) {
  auto shards = build_metadata(spec, shape);
  for (const auto& shard : shards) {
    const auto& ranks = group.ranks();
    TESSERA_CHECK(std::find(ranks.begin(), ranks.end(), shard.placement.rank) != ranks.end(),
                  function, ": placement ", shard.placement, " given, but Global rank ",
                  shard.placement.rank, " does not exist in input process group ", group.name(),
                  " of ranks [", joined(ranks, ","), "]");
    TESSERA_CHECK(shard.placement.device_type() == device_type, function, ": placement ",
                  shard.placement, " given for a tensor on ", device_type,
                  "; the kind of device must be the same");
  }
  return shards;
}

std::string device_type_of(const at::Tensor& tensor) {
  return c10::DeviceTypeName(tensor.device().type(), /*lower_case=*/true);
}

at::TensorOptions shard_options(const TensorProperties& properties,
                                const std::vector<ShardMetadata>& shards) {
  const auto device =
      shards.empty() ? at::Device(at::kCPU) : at::Device(shards.front().placement.device_type());
  return at::TensorOptions().dtype(properties.dtype).device(device);
}

ShardedTensor make_sharded(const Group& group, const ShardingSpec& spec,
                           ShardedTensorMetadata metadata, std::vector<at::Tensor> pieces,
                           bool new_leaves) {
  auto boxes = box_map(metadata.shards, metadata.size);
  const std::int64_t rank = group.world().rank();
  std::vector<LocalShard> shards;
  for (const auto& shard : metadata.shards) {
    if (shard.placement.rank != rank) continue;
    at::Tensor piece = std::move(pieces.at(shards.size()));
    if (new_leaves && metadata.properties.requires_grad) piece.requires_grad_(true);
    shards.push_back({std::move(piece), shard});
  }
  return ShardedTensor(std::make_shared<const ShardedTensor::State>(
      ShardedTensor::State{group, spec, std::move(metadata), std::move(boxes), std::move(shards)}));
}

std::vector<at::Tensor> pieces_of(const std::vector<LocalShard>& shards) {
  std::vector<at::Tensor> pieces;
  pieces.reserve(shards.size());
  for (const auto& shard : shards) pieces.push_back(shard.tensor);
  return pieces;
}

}  // namespace detail

namespace {

using detail::Agreement;

/// What is wrong with a tensor that the values shall be gathered into.
void require_out(Agreement& agreement, const at::Tensor& out, const ShardedTensor::State& state) {
  const auto& [shards, size, properties] = state.metadata;
  if (!agreement.require(!is_dtensor(out), "a DTensor given as `out`; give a plain tensor")) return;
  agreement.require(out.layout() == at::kStrided && out.sizes() == at::IntArrayRef(size) &&
                        out.scalar_type() == properties.dtype,
                    "`out` is ", c10::getDtypeNames(out.scalar_type()).first, '[',
                    joined(out.sizes(), ","), "], the tensor is ",
                    c10::getDtypeNames(properties.dtype).first, '[', joined(size, ","),
                    "]; shape and dtype must be the same");
  agreement.require(detail::device_type_of(out) == shards.front().placement.device_type(),
                    "`out` is on ", detail::device_type_of(out), ", the shards are on ",
                    shards.front().placement.device_type(),
                    "; give one on the same kind of device");
  agreement.require(!out.requires_grad(),
                    "`out` requires gradients, which it would get none of; pass out.detach()");
  agreement.require(out.layout() != at::kStrided ||
                        at::has_internal_overlap(out.unsafeGetTensorImpl()) != at::MemOverlap::Yes,
                    "`out` has strides [",
                    out.layout() == at::kStrided ? joined(out.strides(), ",") : "",
                    "], so that several of its elements are the same memory; pass one of its own");
}

}  // namespace

const ShardingSpec& ShardedTensor::sharding_spec() const { return state_->spec; }
const ShardedTensorMetadata& ShardedTensor::metadata() const { return state_->metadata; }
const Group& ShardedTensor::group() const { return state_->group; }
const std::vector<LocalShard>& ShardedTensor::local_shards() const { return state_->shards; }

at::Tensor ShardedTensor::local_tensor() const {
  const auto& shards = state_->shards;
  TESSERA_CHECK(shards.size() == 1, "local_tensor: Only single local shard is supported, and rank ",
                group().world().rank(), " has ", shards.size(),
                " of this tensor; use local_shards");
  return shards.front().tensor;
}

at::Tensor ShardedTensor::gather(std::int64_t dst, const at::Tensor& out) const {
  constexpr const char* kName = "gather";
  Agreement agreement(kName, group());
  agreement.same("dst", dst);
  agreement.require_no_throw([&] { detail::check_member(kName, "dst", dst, group()); });
  const bool is_dst = group().index() == dst;
  if (out.defined() &&
      agreement.require(is_dst,
                        "Argument ``dst_tensor`` must NOT be specified on non-destination ranks: "
                        "`out` given on rank ",
                        group().world().rank(), ", but dst=", dst,
                        " is another rank; only dst gets the tensor")) {
    require_out(agreement, out, *state_);
  }
  agreement.meet();
  const auto to =
      BoxMap::on_one_rank(state_->metadata.size, group().ranks()[static_cast<std::size_t>(dst)]);
  const auto options = detail::shard_options(metadata().properties, metadata().shards);
  // The memory of a conjugated or negated view holds other values than it shows.
  const bool is_direct = out.defined() && !out.is_conj() && !out.is_neg();
  std::vector<at::Tensor> whole;
  if (is_dst) whole.push_back(is_direct ? out : tessera::detail::new_tensor(sizes(), options));
  tessera::detail::exchange_boxes({state_->boxes, to, group(), kName}, whole,
                                  detail::pieces_of(local_shards()), options);
  if (!is_dst) return {};
  return is_direct || !out.defined() ? whole.front() : out.copy_(whole.front());
}

ShardedTensor ShardedTensor::reshard(const ShardingSpec& spec) const {
  constexpr const char* kName = "reshard";
  Agreement agreement(kName, group());
  agreement.same("sharding_spec", spec);
  ShardedTensorMetadata to = metadata();
  agreement.require_no_throw([&] {
    to.shards = detail::checked_shards(kName, spec, sizes(), group(),
                                       metadata().shards.front().placement.device_type());
  });
  for (const auto& shard : local_shards()) {
    agreement.require(!at::GradMode::is_enabled() || shard.tensor.is_leaf(), "shard ",
                      shard.metadata,
                      " has history, through which reshard does not differentiate; use "
                      "to_dtensor() and redistribute, or detached shards");
  }
  agreement.meet();
  const auto options = detail::shard_options(to.properties, to.shards);
  const BoxMap boxes = box_map(to.shards, sizes());
  auto pieces = tessera::detail::new_pieces(boxes, group().world().rank(), options);
  tessera::detail::exchange_boxes({state_->boxes, boxes, group(), kName}, pieces,
                                  detail::pieces_of(local_shards()), options);
  return detail::make_sharded(group(), spec, std::move(to), std::move(pieces), true);
}

std::ostream& operator<<(std::ostream& os, const ShardedTensor& tensor) {
  std::vector<Box> held;
  for (const auto& shard : tensor.local_shards()) held.push_back(shard.metadata.box());
  return os << "ShardedTensor " << tensor.metadata() << "\nrank " << tensor.group().world().rank()
            << " holds " << (held.empty() ? "nothing" : joined(held));
}

}  // namespace tessera::sharded
