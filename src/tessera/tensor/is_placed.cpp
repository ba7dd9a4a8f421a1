#include "tessera/tensor/is_placed.h"

#include <algorithm>

namespace tessera::detail {

bool is_placed(const DTensorMeta& meta, const DeviceMesh& mesh, const Placements& placements) {
  const Layout& layout = meta.layout();
  if (layout.placements() != placements || !(meta.mesh() == mesh)) return false;
  // A dim that is cut several times may be cut in another order than from left to right.
  const auto by_mesh_dim = [](const Split& a, const Split& b) { return a.mesh_dim < b.mesh_dim; };
  for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
    const auto cuts = layout.splits(dim);
    if (!std::is_sorted(cuts.begin(), cuts.end(), by_mesh_dim)) return false;
  }
  return true;
}

}  // namespace tessera::detail
