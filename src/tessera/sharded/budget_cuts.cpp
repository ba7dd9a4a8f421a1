#include "tessera/sharded/budget_cuts.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "tessera/base/check.h"
#include "tessera/base/units.h"
#include "tessera/layout/box_map.h"
#include "tessera/layout/chunk.h"

namespace tessera::sharded::detail {
namespace {

std::string text(std::int64_t bytes) { return concat(bytes, " B (", format_bytes(bytes), ')'); }

}  // namespace

std::int64_t WeightSize::bytes() const { return whole_box(shape).numel() * element_bytes; }

Cut best_cut(const WeightSize& weight, std::int64_t ranks) {
  Cut best{-1, weight.bytes()};
  for (std::size_t dim = 0; dim < weight.shape.size(); ++dim) {
    const std::int64_t size = weight.shape[dim];
    if (size == 0) continue;
    const std::int64_t bytes = weight.bytes() / size * chunk_extent(size, ranks, 0).size;
    if (bytes < best.bytes) best = {static_cast<std::int64_t>(dim), bytes};
  }
  return best;
}

std::vector<Cut> budget_cuts(const std::vector<WeightSize>& weights, std::int64_t other_bytes,
                             std::int64_t ranks, const BudgetPlanner::Options& options) {
  std::vector<Cut> best;
  std::vector<Cut> cuts;
  for (const auto& weight : weights) {
    best.push_back(best_cut(weight, ranks));
    cuts.push_back({-1, weight.bytes()});
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto saved = [&](std::size_t i) { return weights[i].bytes() - best[i].bytes; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return saved(a) > saved(b); });
  std::int64_t held = other_bytes;
  for (const auto& weight : weights) held += weight.bytes() * options.copies;
  for (const auto i : order) {
    if (held <= options.bytes_per_rank || saved(i) == 0) break;
    held -= saved(i) * options.copies;
    cuts[i] = best[i];
  }
  TESSERA_CHECK(held <= options.bytes_per_rank, "BudgetPlanner: ", text(options.bytes_per_rank),
                " per rank given, but with everything sharded over ", ranks,
                " ranks the fullest one needs ", text(held), ", counting ", options.copies, " cop",
                options.copies == 1 ? "y" : "ies",
                " of the parameters; give more, or use more ranks");
  return cuts;
}

}  // namespace tessera::sharded::detail
