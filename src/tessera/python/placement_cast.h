#pragma once

#include <optional>

#include "tessera/layout/placement.h"
#include "tessera/python/bindings.h"

namespace tessera::python {

/// Returns what a Python object says: one of our placements, or one of `torch.distributed.tensor`.
/// Throws Python's TypeError for anything else.
[[nodiscard]] Placement placement_from(py::handle object);

/// The same for a sequence of them.
[[nodiscard]] Placements placements_from(py::handle sequence);

/// The same for a sequence or None.
[[nodiscard]] std::optional<Placements> optional_placements_from(py::handle sequence);

[[nodiscard]] py::tuple tuple_of(const Placements& placements);

}  // namespace tessera::python
