#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "support/random_layout.h"
#include "tessera/layout/layout.h"

/// Who owns what, by counting on fingers: shares no arithmetic with the library, and does not
/// divide at all. Indices are dealt out one by one.
namespace tessera::test {

/// The indices that a rank holds along one tensor dim, in the order of its memory.
using Indices = std::vector<std::int64_t>;

inline Indices counted_to(std::int64_t length) {
  Indices all;
  for (std::int64_t i = 0; i < length; ++i) all.push_back(i);
  return all;
}

/// Deals `indices` to `count` groups in order, each filled before the next one, all as small as
/// possible but of one capacity: {0,1,2,3,4} to 4 groups is {0,1} {2,3} {4} {}.
inline std::vector<Indices> deal(const Indices& indices, std::int64_t count) {
  std::size_t capacity = 0;
  while (capacity * static_cast<std::size_t>(count) < indices.size()) ++capacity;
  std::vector<Indices> groups(static_cast<std::size_t>(count));
  std::size_t group = 0;
  for (const auto index : indices) {
    if (groups[group].size() == capacity) ++group;
    groups[group].push_back(index);
  }
  return groups;
}

/// Returns what chunk `chunk` of `count` gets when `held` is cut into `pieces` first.
inline Indices keep(const Indices& held, std::int64_t pieces, std::int64_t count,
                    std::int64_t chunk) {
  Indices kept;
  for (const auto& piece : deal(held, pieces)) {
    const auto chunks = deal(piece, count);
    for (const auto index : chunks[static_cast<std::size_t>(chunk)]) kept.push_back(index);
  }
  return kept;
}

/// Returns all coordinates of a mesh; the last index turns fastest.
inline std::vector<Coordinate> all_coordinates(const std::vector<std::int64_t>& sizes) {
  std::vector<Coordinate> all{Coordinate{}};
  for (const auto size : sizes) {
    std::vector<Coordinate> longer;
    for (const auto& coordinate : all) {
      for (std::int64_t i = 0; i < size; ++i) {
        longer.push_back(coordinate);
        longer.back().push_back(i);
      }
    }
    all = longer;
  }
  return all;
}

/// Into how many pieces `placement` cuts tensor dim `dim` of `ndim`; 0 when it leaves it alone.
inline std::int64_t pieces_of(const Placement& placement, std::int64_t dim, std::int64_t ndim) {
  if (const auto* shard = std::get_if<Shard>(&placement)) {
    return shard->dim == dim || shard->dim + ndim == dim ? 1 : 0;
  }
  if (const auto* strided = std::get_if<StridedShard>(&placement)) {
    return strided->dim == dim || strided->dim + ndim == dim ? strided->split_factor : 0;
  }
  return 0;
}

/// Returns the indices of tensor dim `dim` that the rank at `coordinate` holds.
inline Indices held_indices(const Recipe& recipe, std::size_t dim, const Coordinate& coordinate) {
  Indices held = counted_to(recipe.shape[dim]);
  const auto order =
      recipe.shard_order.empty() ? counted_to(recipe.mesh.ndim()) : recipe.shard_order;
  for (const auto mesh_dim : order) {
    const auto at = static_cast<std::size_t>(mesh_dim);
    const std::int64_t pieces =
        pieces_of(recipe.placements[at], static_cast<std::int64_t>(dim), std::ssize(recipe.shape));
    if (pieces > 0) held = keep(held, pieces, recipe.mesh.sizes()[at], coordinate[at]);
  }
  return held;
}

/// Returns the indices of a set one by one.
inline Indices listed(const IndexSet& set) {
  Indices all;
  for (const auto& run : set.runs()) {
    for (std::int64_t i = run.begin; i < run.end(); ++i) all.push_back(i);
  }
  return all;
}

/// Returns the set of ascending indices.
inline IndexSet set_of(const Indices& indices) {
  IndexSet set;
  for (const auto index : indices) set.append({index, 1});
  return set;
}

}  // namespace tessera::test
