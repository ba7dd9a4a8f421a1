#include "tessera/plan/view_choice.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "tessera/base/check.h"

namespace tessera {
namespace {

/// Neighbouring dims of both shapes that hold the same elements: [2,3,4] -> [6,4] has two groups.
/// Sizes shrink as cuts are taken over.
struct DimGroup {
  std::vector<std::int64_t> from_dims;
  std::vector<std::int64_t> to_dims;
  Shape from;
  Shape to;
};

std::vector<DimGroup> group_dims(const Shape& from, const Shape& to) {
  std::vector<DimGroup> groups;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < from.size() || j < to.size()) {
    DimGroup group;
    std::int64_t from_count = 1;
    std::int64_t to_count = 1;
    const auto take_from = [&] {
      group.from_dims.push_back(static_cast<std::int64_t>(i));
      group.from.push_back(from[i]);
      from_count *= from[i++];
    };
    const auto take_to = [&] {
      group.to_dims.push_back(static_cast<std::int64_t>(j));
      group.to.push_back(to[j]);
      to_count *= to[j++];
    };
    if (i < from.size()) take_from();
    if (j < to.size()) take_to();
    while (from_count != to_count) {
      if (from_count < to_count) {
        take_from();
      } else {
        take_to();
      }
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

/// One cut of the source, and the tensor dim that it cuts.
struct Cut {
  std::int64_t dim;
  Split split;
};

/// All cuts in an order that keeps every dim's own nesting; from left to right where that does.
std::vector<Cut> ordered_cuts(const Layout& layout) {
  std::vector<Cut> cuts;
  std::vector<std::size_t> next(static_cast<std::size_t>(layout.ndim()), 0);
  for (;;) {
    std::optional<Cut> first;
    for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
      const auto splits = layout.splits(dim);
      const std::size_t at = next[static_cast<std::size_t>(dim)];
      if (at == splits.size()) continue;
      if (!first || splits[at].mesh_dim < first->split.mesh_dim) first = Cut{dim, splits[at]};
    }
    if (!first) return cuts;
    ++next[static_cast<std::size_t>(first->dim)];
    cuts.push_back(*first);
  }
}

std::int64_t product(const Shape& shape, std::size_t count) {
  return std::accumulate(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(count),
                         std::int64_t{1}, std::multiplies<>());
}

/// The only dim of a group that is not 1, on either side; nothing when there are several.
std::optional<std::size_t> only_dim(const Shape& sizes) {
  std::optional<std::size_t> only;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    if (only) return std::nullopt;
    only = i;
  }
  return only;
}

/// Where a dim only gains or loses neighbours of size 1, all its cuts stay, uneven ones too.
std::optional<Placement> keep_cut(const DimGroup& group, const Cut& cut) {
  std::optional<std::size_t> from = only_dim(group.from);
  std::optional<std::size_t> to = only_dim(group.to);
  if (group.from.size() == 1 && group.to.size() == 1) from = to = 0;
  if (!from || !to || group.from_dims[*from] != cut.dim) return std::nullopt;
  const std::int64_t dim = group.to_dims[*to];
  if (cut.split.pieces == 1) return Placement(Shard(dim));
  return Placement(StridedShard(dim, cut.split.pieces));
}

/// Takes an even cut over to the group's new dims; nothing when it falls across them.
std::optional<Placement> take_over(DimGroup& group, const Cut& cut) {
  if (const auto kept = keep_cut(group, cut)) return kept;
  const auto place = static_cast<std::size_t>(
      std::find(group.from_dims.begin(), group.from_dims.end(), cut.dim) - group.from_dims.begin());
  std::int64_t& size = group.from[place];
  if (size % (cut.split.pieces * cut.split.count) != 0) return std::nullopt;
  // In the order of the elements, the cut divides so many equal pieces.
  std::int64_t pieces = product(group.from, place) * cut.split.pieces;
  for (std::size_t to = 0; to < group.to.size(); ++to) {
    std::int64_t& to_size = group.to[to];
    if (to_size % (pieces * cut.split.count) == 0) {
      size /= cut.split.count;
      to_size /= cut.split.count;
      const std::int64_t dim = group.to_dims[to];
      return pieces == 1 ? Placement(Shard(dim)) : Placement(StridedShard(dim, pieces));
    }
    if (pieces % to_size != 0) return std::nullopt;
    pieces /= to_size;
  }
  return std::nullopt;
}

Placements without_cuts(const Layout& layout) {
  Placements placements = layout.placements();
  for (auto& placement : placements) {
    if (is_sharded(placement)) placement = Replicate();
  }
  return placements;
}

}  // namespace

ViewChoice choose_view(const Layout& from, const Shape& shape) {
  const std::int64_t numel = product(shape, shape.size());
  TESSERA_CHECK(numel == from.numel(), "choose_view: shape [", joined(shape, ","), "] of ", numel,
                " elements given for ", from, " of ", from.numel());
  Placements input = without_cuts(from);
  Placements output = input;
  std::vector<std::int64_t> order;
  bool keeps_all = true;
  if (numel == 0) {
    keeps_all = ordered_cuts(from).empty();
  } else {
    auto groups = group_dims(from.shape(), shape);
    for (const auto& cut : ordered_cuts(from)) {
      const auto group = std::find_if(groups.begin(), groups.end(), [&](const DimGroup& candidate) {
        return std::find(candidate.from_dims.begin(), candidate.from_dims.end(), cut.dim) !=
               candidate.from_dims.end();
      });
      const auto mesh_dim = static_cast<std::size_t>(cut.split.mesh_dim);
      const auto placement = take_over(*group, cut);
      keeps_all = keeps_all && placement.has_value();
      if (!placement) continue;
      input[mesh_dim] = from.placements()[mesh_dim];
      output[mesh_dim] = *placement;
      order.push_back(cut.split.mesh_dim);
    }
  }
  for (std::int64_t dim = 0; dim < from.mesh().ndim(); ++dim) {
    if (std::find(order.begin(), order.end(), dim) == order.end()) order.push_back(dim);
  }
  return {.input = keeps_all ? from : Layout(from.mesh(), input, from.shape(), order),
          .output = Layout(from.mesh(), output, shape, order)};
}

}  // namespace tessera
