#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/layout/layout.h"

namespace tessera::picture {

/// A longest run of indices along one tensor dim that falls to the same ranks.
struct Segment {
  Extent extent;
  /// The chunk that each cut of the dim (see `Layout::splits`) assigns it.
  std::vector<std::int64_t> chunks;
};

/// The segments of one tensor dim in ascending order, or the first and the last of them.
struct Segments {
  std::vector<Segment> shown;
  /// When some are left out: they lie before `shown[*gap]`.
  std::optional<std::size_t> gap;

  /// Rows or columns needed, the one for the gap included.
  [[nodiscard]] std::size_t num_slots() const { return shown.size() + (gap ? 1 : 0); }
  /// What is drawn in a slot; null for the gap.
  [[nodiscard]] const Segment* slot(std::size_t index) const;
};

/// Returns the segments of tensor dim `dim` in at most `max_slots` (at least 3) slots. The cost is
/// that of the segments shown, however many there are.
[[nodiscard]] Segments segments_of(const Layout& layout, std::int64_t dim, std::int64_t max_slots);

/// Who holds a block: every group holds it once, as one rank that has the value or, with Partial,
/// as the ranks whose contributions reduce to it. Ranks ascend in a group; groups ascend by first
/// rank.
struct Owners {
  std::vector<std::vector<std::int64_t>> groups;

  [[nodiscard]] std::vector<std::int64_t> all_ranks() const;
};

/// Returns who holds the block that `segments` span. Tensor dims of null are not looked at, which
/// is right for whole ones.
[[nodiscard]] Owners owners_of(const Layout& layout, const std::vector<const Segment*>& segments);

/// Returns the ranks that hold no element, ascending.
[[nodiscard]] std::vector<std::int64_t> ranks_without_elements(const Layout& layout);

/// Returns ascending ranks as `0`, `0,1`, `0-3` or `0-3,8`; longer than `max_width` columns only
/// their first ones and the last, as `0,8,...,56` with `dots` in the middle.
[[nodiscard]] std::string rank_list(const std::vector<std::int64_t>& ranks, std::size_t max_width,
                                    const std::string& dots);

}  // namespace tessera::picture
