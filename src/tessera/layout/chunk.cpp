#include "tessera/layout/chunk.h"

#include <algorithm>
#include <ostream>

#include "tessera/base/check.h"
#include "tessera/base/divide.h"

namespace tessera {

std::ostream& operator<<(std::ostream& os, const Extent& extent) {
  return os << '[' << extent.begin << ", " << extent.end() << ')';
}

Extent chunk_extent(std::int64_t length, std::int64_t count, std::int64_t index) {
  TESSERA_CHECK(length >= 0, "chunk_extent: length ", length, " given; it must be >= 0");
  TESSERA_CHECK(count >= 1, "chunk_extent: ", count, " chunks given; there must be at least 1");
  TESSERA_CHECK(index >= 0 && index < count, "chunk_extent: index ", index, " given; with ", count,
                " chunks it must be in [0, ", count, ")");
  const std::int64_t chunk = ceil_divide(length, count);
  // `index * chunk` may pass the end only when trailing chunks are empty; clamp without overflow.
  const std::int64_t begin = chunk == 0 || index > length / chunk ? length : index * chunk;
  return {begin, std::min(chunk, length - begin)};
}

}  // namespace tessera
