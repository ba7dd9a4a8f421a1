#pragma once

#include <string>

#include "terminal.h"

namespace tessera::tools {

/// Returns a short walk through plans that show what Tessera does, each with pictures of the
/// layouts before and after, the steps, and the bytes received against what others would.
[[nodiscard]] std::string tour(const Style& style);

}  // namespace tessera::tools
