#pragma once

#include "tessera/comm/device_mesh.h"
#include "tessera/layout/placement.h"
#include "tessera/tensor/dtensor_meta.h"

namespace tessera::detail {

/// Returns whether a DTensor is placed as a redistribution to `placements` on `mesh` would place it,
/// without making a layout. False, too, for placements that are only written otherwise, as S(-1).
[[nodiscard]] bool is_placed(const DTensorMeta& meta, const DeviceMesh& mesh,
                             const Placements& placements);

}  // namespace tessera::detail
