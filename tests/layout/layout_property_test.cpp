// Facts that hold for every layout, checked on random ones against a brute-force oracle. To look at
// one failing case, run `Random random(seed); random_recipe(random, options)` with the seed shown.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "layout/layout_oracle.h"
#include "support/random_layout.h"
#include "tessera/layout/layout.h"

namespace tessera {
namespace {

using test::Indices;
using test::Random;
using test::Recipe;
using test::RecipeOptions;
using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

const test::PlacementOptions kAnyPlacement{
    .partial_ops = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::bxor}};

const RecipeOptions kSmall{.mesh = {.max_ranks = 16, .rank_maps = true},
                           .shape = {.max_numel = 200},
                           .placement = kAnyPlacement};
constexpr std::uint64_t kManyCases = 100'000;

const RecipeOptions kLarge{.mesh = {.max_ranks = 5 * 5 * 5 * 5, .rank_maps = true},
                           .shape = {},
                           .placement = kAnyPlacement};
constexpr std::uint64_t kFewCases = 500;

/// Runs `check(recipe, random)` on random recipes, until one fails.
template <typename Check>
void for_each_case(const RecipeOptions& options, std::uint64_t cases, const Check& check) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    Random random(seed);
    const Recipe recipe = random_recipe(random, options);
    ASSERT_TRUE(check(recipe, random)) << "seed " << seed << ": " << recipe;
  }
}

/// `for_each_case` on many small and on a few large recipes.
template <typename Check>
void for_all_cases(const Check& check) {
  ASSERT_NO_FATAL_FAILURE(for_each_case(kSmall, kManyCases, check));
  for_each_case(kLarge, kFewCases, check);
}

/// The runs are what `IndexSet` promises: ascending, not empty, merged where they touch.
bool well_formed(const IndexSet& set) {
  std::int64_t size = 0;
  std::optional<std::int64_t> last_end;
  for (const auto& run : set.runs()) {
    if (run.size <= 0 || (last_end && run.begin <= *last_end)) return false;
    last_end = run.end();
    size += run.size;
  }
  return size == set.size() && set.empty() == (size == 0);
}

AssertionResult parts_equal_oracle(const Recipe& recipe, Random&) {
  const Layout layout = recipe.layout();
  std::int64_t position = 0;
  for (const auto& coordinate : test::all_coordinates(recipe.mesh.sizes())) {
    const Part part = layout.part_at(position);
    if (part.dims.size() != recipe.shape.size()) return AssertionFailure() << "part " << part;
    for (std::size_t dim = 0; dim < part.dims.size(); ++dim) {
      const Indices expected = test::held_indices(recipe, dim, coordinate);
      if (!well_formed(part.dims[dim]) || test::listed(part.dims[dim]) != expected) {
        return AssertionFailure() << "position " << position << " holds " << part.dims[dim]
                                  << " of dim " << dim << " instead of " << joined(expected);
      }
    }
    if (layout.part_at(coordinate) != part ||
        layout.part_of(recipe.mesh.rank_at(position)) != part) {
      return AssertionFailure() << "position " << position << " is not its coordinate or rank";
    }
    ++position;
  }
  return AssertionSuccess();
}

TEST(LayoutPropertyTest, EveryRankHoldsWhatDealingOneByOneGives) {
  for_all_cases(parts_equal_oracle);
}

/// Counts one more owner for every element of `part` from dim `dim` on.
void add_owner(std::vector<std::int64_t>& owners, const Shape& shape, const Part& part,
               std::size_t dim = 0, std::int64_t offset = 0) {
  if (dim == shape.size()) {
    ++owners[static_cast<std::size_t>(offset)];
    return;
  }
  for (const auto& run : part.dims[dim].runs()) {
    for (std::int64_t i = run.begin; i < run.end(); ++i) {
      add_owner(owners, shape, part, dim + 1, offset * shape[dim] + i);
    }
  }
}

AssertionResult owners_equal_copies(const Recipe& recipe, Random&) {
  const Layout layout = recipe.layout();
  std::int64_t copies = 1;
  for (std::size_t i = 0; i < recipe.placements.size(); ++i) {
    if (!is_sharded(recipe.placements[i])) copies *= recipe.mesh.sizes()[i];
  }
  std::vector<std::int64_t> owners(static_cast<std::size_t>(layout.numel()));
  for (std::int64_t position = 0; position < recipe.mesh.num_ranks(); ++position) {
    add_owner(owners, recipe.shape, layout.part_at(position));
  }
  for (std::size_t element = 0; element < owners.size(); ++element) {
    if (owners[element] != copies) {
      return AssertionFailure() << "element " << element << " has " << owners[element]
                                << " owner(s) instead of " << copies;
    }
  }
  return AssertionSuccess();
}

TEST(LayoutPropertyTest, EveryElementIsOwnedAsOftenAsThePlacementsSay) {
  for_all_cases(owners_equal_copies);
}

AssertionResult sizes_agree_with_parts(const Recipe& recipe, Random&) {
  const Layout layout = recipe.layout();
  for (std::int64_t position = 0; position < recipe.mesh.num_ranks(); ++position) {
    const Part part = layout.part_at(position);
    Shape sizes;
    std::int64_t numel = 1;
    for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
      const IndexSet& held = part.dims[static_cast<std::size_t>(dim)];
      sizes.push_back(std::ssize(test::listed(held)));
      numel *= sizes.back();
      if (layout.owned(dim, position) != held || layout.local_size(dim, position) != sizes.back()) {
        return AssertionFailure() << "dim " << dim << " at position " << position;
      }
    }
    if (part.shape() != sizes || part.numel() != numel || layout.local_shape(position) != sizes ||
        layout.local_numel(position) != numel) {
      return AssertionFailure() << "shape or number of elements at position " << position;
    }
  }
  return AssertionSuccess();
}

TEST(LayoutPropertyTest, SizesAgreeWithParts) { for_all_cases(sizes_agree_with_parts); }

AssertionResult outsiders_hold_nothing(const Recipe& recipe, Random&) {
  const Layout layout = recipe.layout();
  std::vector<std::int64_t> inside = recipe.mesh.ranks();
  std::sort(inside.begin(), inside.end());
  for (std::int64_t rank = -2; rank < inside.back() + 3; ++rank) {
    const bool member = std::binary_search(inside.begin(), inside.end(), rank);
    if (layout.part_of(rank).has_value() != member) return AssertionFailure() << "rank " << rank;
  }
  return AssertionSuccess();
}

TEST(LayoutPropertyTest, ExactlyTheRanksOfTheMeshHoldAPart) {
  for_all_cases(outsiders_hold_nothing);
}

/// Compares `locate` and `take` of every cut with the oracle, where `held` is what the cuts so far
/// have left, and does the same for what each chunk leaves.
AssertionResult locate_inverts_take(const Indices& held, std::span<const Split> cuts) {
  if (cuts.empty()) return AssertionSuccess();
  const Split& cut = cuts.front();
  const std::int64_t length = std::ssize(held);
  std::vector<Indices> kept(static_cast<std::size_t>(cut.count));
  std::int64_t index = 0;
  for (const auto& piece : test::deal(held, cut.pieces)) {
    const auto groups = test::deal(piece, cut.count);
    for (std::size_t chunk = 0; chunk < groups.size(); ++chunk) {
      std::int64_t run = std::ssize(groups[chunk]);
      for (const auto element : groups[chunk]) {
        const auto place = cut.locate(length, index);
        if (place.chunk != static_cast<std::int64_t>(chunk) ||
            place.local != std::ssize(kept[chunk]) || place.run != run) {
          return AssertionFailure()
                 << "index " << index << " of " << length << " is located at (" << place.chunk
                 << ", " << place.local << ", " << place.run << ") instead of (" << chunk << ", "
                 << kept[chunk].size() << ", " << run << ')';
        }
        kept[chunk].push_back(element);
        --run;
        ++index;
      }
    }
  }
  for (std::int64_t chunk = 0; chunk < cut.count; ++chunk) {
    const Indices& mine = kept[static_cast<std::size_t>(chunk)];
    if (test::listed(cut.take(test::set_of(held), chunk)) != mine ||
        cut.local_size(length, chunk) != std::ssize(mine)) {
      return AssertionFailure() << "chunk " << chunk << " should be " << joined(mine);
    }
    if (auto inner = locate_inverts_take(mine, cuts.subspan(1)); !inner) return inner;
  }
  return AssertionSuccess();
}

AssertionResult all_cuts_are_inverted(const Recipe& recipe, Random&) {
  const Layout layout = recipe.layout();
  for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
    const Indices all = test::counted_to(layout.shape()[static_cast<std::size_t>(dim)]);
    auto result = locate_inverts_take(all, layout.splits(dim));
    if (!result) return result << " in dim " << dim;
  }
  return AssertionSuccess();
}

TEST(LayoutPropertyTest, LocateIsTheInverseOfTakeInNestedCutsToo) {
  for_all_cases(all_cuts_are_inverted);
}

/// The same layout in other words: other names, a placement without effect on one-rank mesh dims,
/// `SS(d,1)` for `S(d)` and the other way round.
Recipe respelled(const Recipe& recipe, Random& random) {
  Recipe other = recipe;
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < recipe.mesh.ndim(); ++i) names.push_back(concat("other", i));
  other.mesh = MeshShape(recipe.mesh.sizes(), names, recipe.mesh.ranks());
  for (std::size_t i = 0; i < other.placements.size(); ++i) {
    auto& placement = other.placements[i];
    const auto* shard = std::get_if<Shard>(&placement);
    const auto* strided = std::get_if<StridedShard>(&placement);
    if (recipe.mesh.sizes()[i] == 1) {
      placement = test::random_placements(random, 1, std::ssize(recipe.shape), kAnyPlacement)[0];
    } else if (shard != nullptr) {
      placement = StridedShard(shard->dim, 1);
    } else if (strided != nullptr && strided->split_factor == 1) {
      placement = Shard(strided->dim);
    }
  }
  return other;
}

AssertionResult same_parts_and_roles(const Layout& a, const Layout& b) {
  for (std::int64_t position = 0; position < a.mesh().num_ranks(); ++position) {
    const std::int64_t rank = a.mesh().rank_at(position);
    if (a.part_of(rank) != b.part_of(rank)) return AssertionFailure() << "part of rank " << rank;
  }
  if (a.reduce_op() != b.reduce_op()) return AssertionFailure() << "reduce op";
  return AssertionSuccess();
}

AssertionResult equivalence_is_sound(const Recipe& recipe, Random& random) {
  const Layout layout = recipe.layout();
  const Layout again = respelled(recipe, random).layout();
  if (!layout.equivalent(again) || !again.equivalent(layout)) {
    return AssertionFailure() << again << " is not equivalent";
  }
  const MeshShape unmapped(recipe.mesh.sizes());
  const MeshShape& mesh = random.one_in(2) ? recipe.mesh : unmapped;
  const Layout other = test::random_layout_on(random, mesh, recipe.shape, kAnyPlacement);
  if (layout.equivalent(other) != other.equivalent(layout)) {
    return AssertionFailure() << other << " is equivalent in one direction only";
  }
  const auto result = same_parts_and_roles(layout, again);
  return result && layout.equivalent(other) ? same_parts_and_roles(layout, other) : result;
}

TEST(LayoutPropertyTest, EquivalentLayoutsGiveEveryRankTheSamePartAndRole) {
  for_all_cases(equivalence_is_sound);
}

bool same_contents(const Layout& a, const Layout& b) {
  if (a.mesh() != b.mesh() || a.placements() != b.placements() || a.shape() != b.shape()) {
    return false;
  }
  for (std::int64_t dim = 0; dim < a.ndim(); ++dim) {
    const auto mine = a.splits(dim);
    const auto theirs = b.splits(dim);
    if (!std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end())) return false;
  }
  return true;
}

/// The recipe with one of its ingredients spelled differently or exchanged; often to no effect.
Recipe varied(const Recipe& recipe, Random& random) {
  Recipe other = recipe;
  const auto sizes = recipe.mesh.sizes();
  const auto ndim = std::ssize(recipe.shape);
  switch (random.between(0, 3)) {
    case 0:
      other.shard_order = test::random_shard_order(random, recipe.mesh.ndim());
      break;
    case 1:
      other.mesh = MeshShape(sizes, recipe.mesh.names(), recipe.mesh.ranks());
      break;
    case 2:
      other.mesh = MeshShape(sizes, recipe.mesh.names());
      break;
    case 3:
      other.placements[0] = test::random_placements(random, 1, ndim)[0];
      break;
  }
  return other;
}

AssertionResult equality_is_of_contents(const Recipe& recipe, Random& random) {
  const Layout layout = recipe.layout();
  const Layout again = recipe.layout();
  const Layout other = varied(recipe, random).layout();
  if (layout != again || std::hash<Layout>{}(layout) != again.hash() ||
      layout.to_string() != again.to_string()) {
    return AssertionFailure() << "made twice, they differ";
  }
  const bool same = same_contents(layout, other);
  if ((layout == other) != same || (layout.hash() == other.hash()) != same ||
      (layout.to_string() == other.to_string()) != same) {
    return AssertionFailure() << other << (same ? " has the same contents" : " differs");
  }
  return AssertionSuccess();
}

TEST(LayoutPropertyTest, LayoutsAreEqualAndHashEqualExactlyWhenTheirContentsAre) {
  for_all_cases(equality_is_of_contents);
}

}  // namespace
}  // namespace tessera
