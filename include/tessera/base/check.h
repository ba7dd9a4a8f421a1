#pragma once

#include <string>

#include "tessera/base/concat.h"
#include "tessera/base/error.h"

namespace tessera::detail {

[[noreturn]] void throw_invalid_argument(const std::string& message);
[[noreturn]] void throw_internal_error(const char* condition, const char* file, int line,
                                       const std::string& message);

}  // namespace tessera::detail

/// Throws `InvalidArgument` unless `condition` holds. The other arguments are streamed into the
/// message, and only when the check fails:
///
///     TESSERA_CHECK(dim < ndim, "split: dim ", dim, " given; the tensor has ", ndim, " dims");
#define TESSERA_CHECK(condition, ...)                                            \
  do {                                                                           \
    if (!(condition)) [[unlikely]] {                                             \
      ::tessera::detail::throw_invalid_argument(::tessera::concat(__VA_ARGS__)); \
    }                                                                            \
  } while (false)

/// Throws `InternalError` unless `condition` holds: for what only a bug of ours can violate.
#define TESSERA_INTERNAL_CHECK(condition, ...)                                 \
  do {                                                                         \
    if (!(condition)) [[unlikely]] {                                           \
      ::tessera::detail::throw_internal_error(#condition, __FILE__, __LINE__,  \
                                              ::tessera::concat(__VA_ARGS__)); \
    }                                                                          \
  } while (false)
