#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <vector>

#include "tessera/layout/chunk.h"

namespace tessera {

/// The indices that one rank owns along one tensor dimension: sorted, disjoint runs.
///
/// Local memory keeps them in this order, so an index's local position is how many owned indices
/// come before it. Runs that touch are merged; there are no empty runs.
class IndexSet {
 public:
  IndexSet() = default;
  /// One run; an empty extent gives the empty set.
  explicit IndexSet(Extent extent);

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::span<const Extent> runs() const& { return runs_; }
  /// The runs of a temporary would dangle.
  std::span<const Extent> runs() const&& = delete;

  /// Adds a run behind all others; empty runs are ignored. Throws `InvalidArgument` when it starts
  /// before the end of the last one.
  void append(Extent run);

  /// Returns the indices at the local positions [positions.begin, positions.end()). Throws
  /// `InvalidArgument` when that reaches outside [0, size()).
  [[nodiscard]] IndexSet slice(Extent positions) const;

  /// Returns the indices that both own.
  [[nodiscard]] IndexSet intersect(const IndexSet& other) const;

  bool operator==(const IndexSet&) const = default;

 private:
  std::vector<Extent> runs_;
  std::int64_t size_ = 0;
};

/// Prints `{}`, `[0, 4)` or `[0, 2)+[4, 6)`.
std::ostream& operator<<(std::ostream& os, const IndexSet& set);

}  // namespace tessera
