#include "tessera/plan/roles.h"

#include <algorithm>

#include "tessera/base/check.h"

namespace tessera::detail {
namespace {

bool is_active_partial(const Layout& layout, std::size_t mesh_dim) {
  return is_partial(layout.placements()[mesh_dim]) && layout.mesh().sizes()[mesh_dim] > 1;
}

/// How many leading cuts of tensor dim `dim` the two layouts share.
std::size_t common_prefix(const Layout& from, const Layout& to, std::int64_t dim) {
  const auto a = from.splits(dim);
  const auto b = to.splits(dim);
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                  a.begin());
}

}  // namespace

void Axes::add(const MeshShape& mesh, std::int64_t dim) {
  axes_.push_back({mesh.stride(dim), mesh.size(dim)});
  count_ *= mesh.size(dim);
}

std::int64_t Axes::index_of(std::int64_t position) const {
  std::int64_t index = 0;
  for (const auto& axis : axes_) index = index * axis.size + position / axis.stride % axis.size;
  return index;
}

std::int64_t Axes::offset_of(std::int64_t index) const {
  std::int64_t offset = 0;
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    offset += index % axis->size * axis->stride;
    index /= axis->size;
  }
  return offset;
}

std::int64_t Axes::project(std::int64_t position) const {
  std::int64_t offset = 0;
  for (const auto& axis : axes_) offset += position / axis.stride % axis.size * axis.stride;
  return offset;
}

void check_pair(const Layout& from, const Layout& to) {
  TESSERA_CHECK(from.shape() == to.shape(), "redistribute: from ", from, " to ", to,
                " given; both must have the same global shape");
  if (!from.mesh().same_ranks(to.mesh())) return;
  for (std::size_t i = 0; i < from.placements().size(); ++i) {
    if (!is_active_partial(from, i) || !is_active_partial(to, i)) continue;
    TESSERA_CHECK(from.placements()[i] == to.placements()[i], "redistribute: mesh dim ",
                  from.mesh().dim_label(static_cast<std::int64_t>(i)), " of ", from.mesh(),
                  " cannot go from ", from.placements()[i], " to ", to.placements()[i],
                  ": contributions to one reduction are none to another; redistribute to R first");
  }
}

Roles::Roles(const Layout& from_layout, const Layout& to_layout)
    : from(from_layout),
      to(to_layout),
      same_mesh(from_layout.mesh().same_ranks(to_layout.mesh())),
      local(same_mesh) {
  const auto& source_sizes = from.mesh().sizes();
  std::vector<bool> quiet(source_sizes.size(), false);
  for (std::size_t i = 0; i < source_sizes.size(); ++i) {
    if (source_sizes[i] == 1) {
      quiet[i] = true;
      continue;
    }
    const auto dim = static_cast<std::int64_t>(i);
    const auto& placement = from.placements()[i];
    const bool spectator =
        same_mesh && !is_sharded(placement) && from.placements()[i] == to.placements()[i];
    if (spectator) {
      spectators.add(from.mesh(), dim);
      quiet[i] = true;
    } else if (is_sharded(placement)) {
      source_shards.add(from.mesh(), dim);
    } else if (is_replicate(placement)) {
      source_replicas.add(from.mesh(), dim);
    } else {
      contributions.add(from.mesh(), dim);
      reduce = from.reduce_op() == ReduceOp::avg ? ReduceOp::sum : from.reduce_op();
      if (std::get<Partial>(placement).op == ReduceOp::avg) divisor *= source_sizes[i];
      local = false;
    }
  }
  const auto& destination_sizes = to.mesh().sizes();
  for (std::size_t i = 0; i < destination_sizes.size(); ++i) {
    const bool spectator = same_mesh && quiet[i] && source_sizes[i] > 1;
    if (destination_sizes[i] == 1 || spectator) continue;
    const auto dim = static_cast<std::int64_t>(i);
    const auto& placement = to.placements()[i];
    if (is_sharded(placement)) {
      destination_shards.add(to.mesh(), dim);
    } else if (is_replicate(placement) || placement == Placement(Partial(ReduceOp::avg))) {
      destination_replicas.add(to.mesh(), dim);
    } else {
      roots.add(to.mesh(), dim);
      fill = std::get<Partial>(placement).op;
    }
  }
  if (!same_mesh) return;
  for (std::int64_t dim = 0; dim < from.ndim(); ++dim) {
    const auto splits = from.splits(dim);
    const std::size_t shared = common_prefix(from, to, dim);
    // What `from` cuts, `to` must cut alike and may only cut further.
    local = local && shared == splits.size();
    for (std::size_t i = 0; i < shared; ++i) {
      quiet[static_cast<std::size_t>(splits[i].mesh_dim)] = true;
    }
  }
  for (std::size_t i = 0; i < quiet.size(); ++i) {
    if (!quiet[i]) talking_dims.push_back(static_cast<std::int64_t>(i));
  }
}

}  // namespace tessera::detail
