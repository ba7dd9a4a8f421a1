#include "tessera/base/check.h"

namespace tessera::detail {

void throw_invalid_argument(const std::string& message) { throw InvalidArgument(message); }

void throw_internal_error(const char* condition, const char* file, int line,
                          const std::string& message) {
  throw InternalError(concat(message, " (", condition, " does not hold at ", file, ":", line,
                             "; this is a bug in Tessera, please report it)"));
}

}  // namespace tessera::detail
