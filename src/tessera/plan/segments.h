#pragma once

#include <cstdint>
#include <vector>

#include "tessera/layout/layout.h"

namespace tessera::detail {

/// What one rank's part of a tensor dim has in common with the parts of another layout.
struct Segments {
  /// Indices that go together to or from the same coordinates of the other mesh.
  struct Run {
    Extent local;
    /// What these coordinates contribute to a row-major position of the other mesh.
    std::int64_t offset;
  };
  /// All runs with one `offset`: runs[first .. first + count).
  struct Group {
    std::int64_t offset;
    std::int64_t size;
    std::size_t first;
    std::size_t count;
  };
  std::vector<Run> runs;
  std::vector<Group> groups;
};

/// Cuts `owned` (one rank's indices of tensor dim `dim`) by the owners that `other` gives them.
/// Groups come in ascending order of their first index, unless a strided shard forces sorting by
/// offset; runs within a group ascend.
[[nodiscard]] Segments segments_by_owner(const IndexSet& owned, const Layout& other,
                                         std::int64_t dim);

/// Returns an upper bound on the number of groups of `segments_by_owner`, without walking along them.
[[nodiscard]] std::int64_t max_owner_count(const IndexSet& owned, const Layout& other,
                                           std::int64_t dim);

}  // namespace tessera::detail
