#pragma once

#include <string>

#include <gmock/gmock.h>

#include "tessera/base/error.h"

namespace tessera::test {

/// Matches a callable that throws `InvalidArgument` with exactly this text:
///
///     EXPECT_THAT([] { return chunk_extent(-1, 2, 0); }, throws_invalid_argument("..."));
inline auto throws_invalid_argument(const std::string& text) {
  return ::testing::ThrowsMessage<InvalidArgument>(::testing::StrEq(text));
}

}  // namespace tessera::test
