#pragma once

#include <optional>
#include <string>

#include "tessera/layout/layout.h"

namespace tessera::detail {

/// Returns why the gradients of a tensor's parts cannot form `gradient`, nothing when they can; the
/// text begins with the tensor's layout.
///
/// They are as large as the parts; so along a mesh dim they are S(d) if and only if the tensor is, and
/// else copies or contributions to a sum.
[[nodiscard]] std::optional<std::string> why_not_gradient_of_part(const Layout& tensor,
                                                                  const Layout& gradient);

}  // namespace tessera::detail
