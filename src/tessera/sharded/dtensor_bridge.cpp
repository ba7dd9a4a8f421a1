#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "tessera/base/check.h"
#include "tessera/comm/exchange_boxes.h"
#include "tessera/comm/world.h"
#include "tessera/sharded/state.h"
#include "tessera/tensor/conversion.h"
#include "tessera/tensor/dtensor.h"
#include "tessera/tensor/dtensor_meta.h"

namespace tessera::sharded {
namespace {

using detail::Agreement;

/// The boxes of a local tensor: what `BoxMap::of` lists for its rank, as views.
std::vector<at::Tensor> views_of(const at::Tensor& local, const Layout& layout, std::int64_t rank,
                                 const std::vector<Box>& boxes) {
  const auto part = layout.part_of(rank);
  if (!part) return {};
  if (boxes.size() == 1) return {local};
  std::vector<at::Tensor> views;
  for (const auto& box : boxes) {
    at::Tensor view = local;
    for (std::size_t d = 0; d < box.dims.size(); ++d) {
      const std::int64_t begin =
          part->dims[d].intersect(IndexSet(Extent{0, box.dims[d].begin})).size();
      view = view.narrow(static_cast<std::int64_t>(d), begin, box.dims[d].size);
    }
    views.push_back(view);
  }
  return views;
}

std::vector<ShardMetadata> shards_of(const BoxMap& boxes, const std::string& device_type) {
  std::vector<ShardMetadata> shards;
  for (const auto& [box, rank] : boxes.boxes()) {
    std::vector<std::int64_t> offsets;
    for (const auto& extent : box.dims) offsets.push_back(extent.begin);
    shards.emplace_back(std::move(offsets), box.shape(), RankDevice(rank, device_type));
  }
  return shards;
}

void check_in_group(const std::string& function, const DeviceMesh& mesh, const Group& group) {
  for (const auto rank : mesh.shape().ranks()) {
    TESSERA_CHECK(
        std::find(group.ranks().begin(), group.ranks().end(), rank) != group.ranks().end(),
        function, ": ", mesh, " has rank ", rank, ", which does not exist in group ", group.name(),
        " of ranks [", joined(group.ranks(), ","), "]");
  }
}

void check_one_holder(const char* function, const at::Tensor& tensor) {
  const Layout& layout = layout_of(tensor);
  for (std::int64_t dim = 0; dim < layout.mesh().ndim(); ++dim) {
    TESSERA_CHECK(layout.mesh().size(dim) == 1 ||
                      is_sharded(layout.placements()[static_cast<std::size_t>(dim)]),
                  function, ": ", layout, " is not sharded along mesh dim ",
                  layout.mesh().dim_label(dim),
                  ", but every element of a sharded tensor is on one rank; redistribute it first, "
                  "or give a sharding spec");
  }
}

/// The DTensor of a new local tensor.
at::Tensor dtensor_of(const at::Tensor& local, const DeviceMesh& mesh, const Layout& layout) {
  return from_local(local, mesh, layout.placements(), {.shape = layout.shape()});
}

}  // namespace

namespace detail {

at::Tensor move_to_dtensor(const MoveSource& source, const std::vector<at::Tensor>& pieces,
                           const DeviceMesh& mesh, const Layout& layout) {
  const std::int64_t rank = source.group.world().rank();
  const BoxMap boxes = BoxMap::of(layout);
  const auto position = mesh.shape().position_of(rank);
  const at::NoGradGuard no_history;
  const at::Tensor local =
      at::empty(position ? layout.local_shape(*position) : Shape{0}, source.options);
  tessera::detail::exchange_boxes({source.boxes, boxes, source.group, source.cause},
                                  views_of(local, layout, rank, boxes.held_by(rank)), pieces,
                                  source.options);
  return dtensor_of(local, mesh, layout);
}

at::Tensor place_from_member(const std::string& cause, const at::Tensor& tensor,
                             std::int64_t src_rank, const Group& group, const DeviceMesh& mesh,
                             const Layout& layout) {
  const auto boxes =
      BoxMap::on_one_rank(layout.shape(), group.ranks()[static_cast<std::size_t>(src_rank)]);
  std::vector<at::Tensor> pieces;
  if (group.index() == src_rank) pieces.push_back(tensor);
  const auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(tensor.device());
  return move_to_dtensor({cause, boxes, group, options}, pieces, mesh, layout);
}

}  // namespace detail

std::optional<Layout> ShardedTensor::layout() const {
  return find_layout(sharding_spec(), sizes());
}

at::Tensor ShardedTensor::to_dtensor() const {
  const auto found = layout();
  TESSERA_CHECK(found.has_value(), "to_dtensor: no DTensor is placed as ", sharding_spec(),
                " says, because ranks hold several shards or the shards form no even grid; use "
                "to_dtensor(mesh, placements), which moves them");
  const std::string device_type = metadata().shards.front().placement.device_type();
  const DeviceMesh mesh(device_type, found->mesh(), group().world());
  if (!local_shards().empty()) return dtensor_of(local_tensor(), mesh, *found);
  auto outside = at::empty({0}, detail::shard_options(metadata().properties, metadata().shards));
  outside.requires_grad_(metadata().properties.requires_grad);
  return dtensor_of(outside, mesh, *found);
}

at::Tensor ShardedTensor::to_dtensor(const DeviceMesh& mesh, const Placements& placements) const {
  constexpr const char* kName = "to_dtensor";
  Agreement agreement(kName, group());
  std::optional<Layout> target;
  agreement.require_no_throw([&] {
    target = tessera::detail::checked_layout(kName, mesh, placements, sizes());
    check_in_group(kName, mesh, group());
    TESSERA_CHECK(!target->has_partial(), kName, ": ", *target,
                  " given; redistribute to Partial afterwards, shards are values");
    TESSERA_CHECK(mesh.device_type() == metadata().shards.front().placement.device_type(), kName,
                  ": ", mesh, " given for shards on ",
                  metadata().shards.front().placement.device_type());
  });
  agreement.same("mesh", mesh);
  agreement.same("placements", to_string(placements));
  agreement.meet();
  return detail::move_to_dtensor({kName, state_->boxes, group(),
                                  detail::shard_options(metadata().properties, metadata().shards)},
                                 detail::pieces_of(local_shards()), mesh, *target);
}

ShardedTensor from_dtensor(const at::Tensor& tensor, const std::optional<Group>& its_group) {
  constexpr const char* kName = "from_dtensor";
  const Group group = detail::group_or_current(its_group);
  TESSERA_CHECK(is_dtensor(tensor), kName, ": a plain tensor given; use shard_tensor");
  check_one_holder(kName, tensor);
  check_in_group(kName, mesh_of(tensor), group);
  const Layout& layout = layout_of(tensor);
  const BoxMap boxes = BoxMap::of(layout);
  ShardedTensorMetadata metadata{
      shards_of(boxes, mesh_of(tensor).device_type()),
      layout.shape(),
      {.dtype = tensor.scalar_type(), .requires_grad = tensor.requires_grad()}};
  const ShardingSpec spec = infer_spec(metadata.shards, layout.shape());
  metadata.shards = build_metadata(spec, layout.shape());
  const std::int64_t rank = group.world().rank();
  auto pieces = views_of(to_local(tensor), layout, rank, boxes.held_by(rank));
  return detail::make_sharded(group, spec, std::move(metadata), std::move(pieces), false);
}

ShardedTensor from_dtensor(const at::Tensor& tensor, const ShardingSpec& spec,
                           const std::optional<Group>& its_group) {
  constexpr const char* kName = "from_dtensor";
  const Group group = detail::group_or_current(its_group);
  Agreement agreement(kName, group);
  ShardedTensorMetadata metadata;
  if (agreement.require(is_dtensor(tensor), "a plain tensor given; use shard_tensor")) {
    agreement.require(!layout_of(tensor).has_partial(), layout_of(tensor),
                      " given; reduce it first: redistribute(x, ...)");
    metadata.size = tensor.sizes().vec();
    metadata.properties.dtype = tensor.scalar_type();
    agreement.require_no_throw([&] {
      check_in_group(kName, mesh_of(tensor), group);
      metadata.shards =
          detail::checked_shards(kName, spec, metadata.size, group, mesh_of(tensor).device_type());
    });
    agreement.same("layout", layout_of(tensor));
  } else {
    agreement.same("layout", "");
  }
  agreement.same("sharding_spec", spec);
  agreement.meet();
  const std::int64_t rank = group.world().rank();
  const Layout& layout = layout_of(tensor);
  const BoxMap from = BoxMap::of(layout);
  const BoxMap to = box_map(metadata.shards, metadata.size);
  const auto options = detail::shard_options(metadata.properties, metadata.shards);
  auto pieces = tessera::detail::new_pieces(to, rank, options);
  const at::NoGradGuard no_history;
  tessera::detail::exchange_boxes({from, to, group, kName}, pieces,
                                  views_of(to_local(tensor), layout, rank, from.held_by(rank)),
                                  options);
  return detail::make_sharded(group, spec, std::move(metadata), std::move(pieces), true);
}

}  // namespace tessera::sharded
