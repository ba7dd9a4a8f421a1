#pragma once

namespace torch {
class Library;
}

namespace tessera::detail {

/// The same as `override_composites` for linear algebra and combinations, whose composite functions
/// write to tensors that they make themselves.
void override_linalg_composites(torch::Library& library);

}  // namespace tessera::detail
