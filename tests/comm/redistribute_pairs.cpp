#include "comm/redistribute_pairs.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "tessera/base/check.h"

namespace tessera::test {
namespace {

constexpr std::size_t kParts = 7;

std::vector<Placement> every_placement(std::size_t ndim, const PairOptions& options) {
  std::vector<Placement> all{Replicate(), Partial(ReduceOp::sum)};
  if (options.all_kinds) all.emplace_back(Partial(options.other_op));
  for (std::size_t d = 0; d < ndim; ++d) {
    all.emplace_back(Shard(static_cast<std::int64_t>(d)));
    if (options.all_kinds) {
      all.emplace_back(StridedShard(static_cast<std::int64_t>(d), options.split_factor));
    }
  }
  return all;
}

/// All placements for a mesh, by counting through them.
std::vector<Placements> all_placements(const MeshShape& mesh, std::size_t ndim,
                                       const PairOptions& options) {
  const auto choices = every_placement(ndim, options);
  std::vector<Placements> all{{}};
  for (std::int64_t d = 0; d < mesh.ndim(); ++d) {
    std::vector<Placements> longer;
    for (const auto& prefix : all) {
      for (const auto& choice : choices) {
        longer.push_back(prefix);
        longer.back().push_back(choice);
      }
    }
    all = std::move(longer);
  }
  return all;
}

bool mixes_partials(const Placements& placements) {
  std::optional<ReduceOp> op;
  for (const auto& placement : placements) {
    const auto* partial = std::get_if<Partial>(&placement);
    if (partial == nullptr) continue;
    if (op.value_or(partial->op) != partial->op) return true;
    op = partial->op;
  }
  return false;
}

bool takes_maximum(const Placements& placements) {
  return std::find(placements.begin(), placements.end(), Placement(Partial(ReduceOp::max))) !=
         placements.end();
}

/// Adds a pair as one case or two.
void add_pair(std::vector<MoveCase>& cases, const Layout& from, const Layout& to,
              std::size_t number, const PairOptions& options) {
  // Complex numbers have no maximum. Dtypes share the pairs, so another one takes its place.
  const bool has_none = at::isComplexType(options.dtype) &&
                        (takes_maximum(from.placements()) || takes_maximum(to.placements()));
  const at::ScalarType dtype = has_none ? at::kFloat : options.dtype;
  const bool turn = (number / options.every + options.strided_phase) % 2 == 0;
  for (const bool strided : {turn, !turn}) {
    // Other dtypes begin elsewhere, so that between them they run most pairs.
    const std::size_t place = 2 * (number + static_cast<std::size_t>(dtype)) + (strided ? 1 : 0);
    if (!is_left_out(place)) cases.push_back({from, to, dtype, strided, options.staging_budget});
    if (!options.both_memories) break;
  }
}

}  // namespace

std::vector<MoveCase> every_pair(const MeshShape& from, const MeshShape& to, const Shape& shape,
                                 const PairOptions& options) {
  std::vector<MoveCase> cases;
  std::size_t number = 0;
  const auto all_after = all_placements(to, shape.size(), options);
  for (const auto& before : all_placements(from, shape.size(), options)) {
    if (mixes_partials(before)) continue;
    const Layout source(from, before, shape);
    for (const auto& after : all_after) {
      if (mixes_partials(after)) continue;
      if (from.same_ranks(to) && !is_possible(before, after)) continue;
      if (number++ % options.every != options.first) continue;
      add_pair(cases, source, Layout(to, after, shape), number, options);
    }
  }
  return cases;
}

bool is_possible(const Placements& from, const Placements& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto* a = std::get_if<Partial>(&from[i]);
    const auto* b = std::get_if<Partial>(&to[i]);
    if (a != nullptr && b != nullptr && !(*a == *b)) return false;
  }
  return !mixes_partials(from) && !mixes_partials(to);
}

bool is_in_part(std::size_t number, std::size_t part) {
  constexpr std::uint64_t kScatter = 0x9e3779b97f4a7c15;
  return (number * kScatter >> 33) % kParts == part;
}

std::size_t part_named(const char* value) {
  const std::string_view name = value == nullptr ? "" : value;
  if (name.empty()) return 0;
  TESSERA_CHECK(name.size() == 1 && name[0] >= '0' && name[0] < '0' + static_cast<int>(kParts),
                "TESSERA_TSAN_PART=", name, " given; it is a number from 0 to ", kParts - 1);
  return static_cast<std::size_t>(name[0] - '0');
}

bool is_left_out([[maybe_unused]] std::size_t number) {
#ifdef __SANITIZE_THREAD__
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets any.
  static const std::size_t part = part_named(std::getenv("TESSERA_TSAN_PART"));
  return !is_in_part(number, part);
#else
  return false;
#endif
}

}  // namespace tessera::test
