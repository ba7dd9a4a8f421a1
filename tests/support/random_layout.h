#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/concat.h"
#include "tessera/layout/layout.h"

/// Random layouts for tests. The same seed gives the same layout on every machine.
namespace tessera::test {

/// Random integers. `std::mt19937_64` is the same everywhere; the standard distributions are not,
/// so they are not used.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// Returns an integer in [low, high], both included. Needs low <= high.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    // The remainder prefers small values by less than one in 2^50 for the ranges of tests.
    const auto span = static_cast<std::uint64_t>(high - low) + 1;
    return low + static_cast<std::int64_t>(engine_() % span);
  }
  bool one_in(std::int64_t count) { return between(1, count) == 1; }

  /// Returns one of `items`, which must not be empty.
  template <typename Item>
  const Item& pick(const std::vector<Item>& items) {
    return items[static_cast<std::size_t>(between(0, std::ssize(items) - 1))];
  }

  template <typename Item>
  void shuffle(std::vector<Item>& items) {
    for (std::ptrdiff_t last = std::ssize(items) - 1; last > 0; --last) {
      std::swap(items[static_cast<std::size_t>(last)],
                items[static_cast<std::size_t>(between(0, last))]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

struct MeshOptions {
  std::int64_t max_dims = 4;
  std::int64_t max_size = 5;
  std::int64_t max_ranks = 32;
  /// Ranks may be permuted, start above 0 and leave holes; otherwise they are 0, 1, 2, ...
  bool rank_maps = false;
};

struct ShapeOptions {
  std::int64_t max_dims = 4;
  std::int64_t max_size = 13;
  std::int64_t max_numel = 13 * 13 * 13 * 13;
};

struct PlacementOptions {
  /// 0 for no `StridedShard` at all.
  std::int64_t max_split_factor = 4;
  /// Empty for no `Partial` at all. One layout uses one of them, or sum and avg.
  std::vector<ReduceOp> partial_ops = {};
};

struct RecipeOptions {
  MeshOptions mesh = {};
  ShapeOptions shape = {};
  PlacementOptions placement = {};
};

/// What a layout is made of. Kept apart because a layout forgets how its contents were spelled.
struct Recipe {
  MeshShape mesh;
  Placements placements;
  Shape shape;
  std::vector<std::int64_t> shard_order;

  [[nodiscard]] Layout layout() const { return Layout(mesh, placements, shape, shard_order); }
};

inline std::ostream& operator<<(std::ostream& os, const Recipe& recipe) {
  return os << '[' << joined(recipe.shape, ",") << ']' << to_string(recipe.placements) << " on "
            << recipe.mesh << " in shard order (" << joined(recipe.shard_order) << ')';
}

/// Returns `count` different ranks: by chance permuted, starting above 0, or with holes.
inline std::vector<std::int64_t> random_ranks(Random& random, std::int64_t count) {
  const bool holes = random.one_in(2);
  std::int64_t next = random.one_in(2) ? random.between(1, 5) : 0;
  std::vector<std::int64_t> ranks;
  for (std::int64_t i = 0; i < count; ++i) {
    ranks.push_back(next);
    next += holes ? random.between(1, 3) : 1;
  }
  if (random.one_in(2)) random.shuffle(ranks);
  return ranks;
}

/// Returns a mesh of 1 to `max_dims` dims, half of the time with names.
inline MeshShape random_mesh(Random& random, const MeshOptions& options = {}) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(random.between(1, options.max_dims)));
  std::int64_t num_ranks = 1;
  for (auto& size : sizes) {
    size = random.between(1, std::min(options.max_size, options.max_ranks / num_ranks));
    num_ranks *= size;
  }
  random.shuffle(sizes);  // The cap makes later sizes smaller.
  std::vector<std::string> names;
  if (random.one_in(2)) {
    for (std::size_t i = 0; i < sizes.size(); ++i) names.push_back(concat('m', i));
  }
  auto ranks = options.rank_maps ? random_ranks(random, num_ranks) : std::vector<std::int64_t>{};
  return MeshShape(std::move(sizes), std::move(names), std::move(ranks));
}

/// Returns the sizes of a tensor of 0 to `max_dims` dims; one size in fourteen is 0.
inline Shape random_shape(Random& random, const ShapeOptions& options = {}) {
  Shape shape(static_cast<std::size_t>(random.between(0, options.max_dims)));
  std::int64_t numel = 1;
  for (auto& size : shape) {
    size = random.between(1, std::min(options.max_size, options.max_numel / numel));
    numel *= size;
    if (random.one_in(14)) size = 0;
  }
  random.shuffle(shape);
  return shape;
}

/// Returns the ops that one layout may use together, by chance: one of `ops`, or its linear ones.
inline std::vector<ReduceOp> random_compatible_ops(Random& random, std::vector<ReduceOp> ops) {
  if (ops.empty()) return ops;
  const auto linear = [](ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg; };
  const ReduceOp chosen = random.pick(ops);
  std::erase_if(ops, [&](ReduceOp op) { return linear(chosen) ? !linear(op) : op != chosen; });
  return ops;
}

/// Returns one placement per dim of a mesh of `mesh_ndim` for a tensor of `ndim`; every kind that
/// is possible is as likely as the others. One shard dim in four counts from the end.
inline Placements random_placements(Random& random, std::int64_t mesh_ndim, std::int64_t ndim,
                                    const PlacementOptions& options = {}) {
  enum class Kind { replicate, shard, strided, partial };
  const auto ops = random_compatible_ops(random, options.partial_ops);
  std::vector<Kind> kinds{Kind::replicate};
  if (ndim > 0) kinds.push_back(Kind::shard);
  if (ndim > 0 && options.max_split_factor > 0) kinds.push_back(Kind::strided);
  if (!ops.empty()) kinds.push_back(Kind::partial);
  // Half of the layouts shard one tensor dim only, so that cuts nest often.
  const std::int64_t only_dim = ndim > 0 && random.one_in(2) ? random.between(0, ndim - 1) : -1;
  const auto dim = [&] {
    const std::int64_t chosen = only_dim >= 0 ? only_dim : random.between(0, ndim - 1);
    return random.one_in(4) ? chosen - ndim : chosen;
  };

  Placements placements(static_cast<std::size_t>(mesh_ndim));
  for (auto& placement : placements) {
    switch (random.pick(kinds)) {
      case Kind::replicate:
        placement = Replicate();
        break;
      case Kind::shard:
        placement = Shard(dim());
        break;
      case Kind::strided: {
        const std::int64_t tensor_dim = dim();
        placement = StridedShard(tensor_dim, random.between(1, options.max_split_factor));
        break;
      }
      case Kind::partial:
        placement = Partial(random.pick(ops));
        break;
    }
  }
  return placements;
}

/// Returns a permutation of the mesh dims, or nothing, which means left to right.
inline std::vector<std::int64_t> random_shard_order(Random& random, std::int64_t mesh_ndim) {
  if (random.one_in(4)) return {};
  std::vector<std::int64_t> order(static_cast<std::size_t>(mesh_ndim));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  random.shuffle(order);
  return order;
}

/// Returns a recipe for a tensor of `shape` on `mesh`: use it twice for a redistribution.
inline Recipe random_recipe_on(Random& random, const MeshShape& mesh, const Shape& shape,
                               const PlacementOptions& options = {}) {
  auto placements = random_placements(random, mesh.ndim(), std::ssize(shape), options);
  auto order = random_shard_order(random, mesh.ndim());
  return Recipe{mesh, std::move(placements), shape, std::move(order)};
}

inline Recipe random_recipe(Random& random, const RecipeOptions& options = {}) {
  const MeshShape mesh = random_mesh(random, options.mesh);
  const Shape shape = random_shape(random, options.shape);
  return random_recipe_on(random, mesh, shape, options.placement);
}

inline Layout random_layout_on(Random& random, const MeshShape& mesh, const Shape& shape,
                               const PlacementOptions& options = {}) {
  return random_recipe_on(random, mesh, shape, options).layout();
}

inline Layout random_layout(Random& random, const RecipeOptions& options = {}) {
  return random_recipe(random, options).layout();
}

}  // namespace tessera::test
