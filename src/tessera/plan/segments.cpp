#include "tessera/plan/segments.h"

#include <algorithm>
#include <span>

#include "tessera/base/divide.h"

namespace tessera::detail {
namespace {

/// Walks along a tensor dim and tells which coordinates of a layout own the indices.
class OwnerWalk {
 public:
  OwnerWalk(const Layout& layout, std::int64_t dim)
      : splits_(layout.splits(dim)), length_(layout.shape()[static_cast<std::size_t>(dim)]) {
    strides_.reserve(splits_.size());
    for (const auto& split : splits_) strides_.push_back(layout.mesh().stride(split.mesh_dim));
  }

  /// Calls visit(begin, size, offset) for the consecutive runs of `range`.
  template <typename Visit>
  void walk(Extent range, Visit visit) const {
    if (splits_.empty()) {
      visit(range.begin, range.size, std::int64_t{0});
      return;
    }
    std::int64_t index = range.begin;
    while (index < range.end()) index = walk_siblings(index, range.end(), visit);
  }

  /// Position of the owner of `index` when the owners are counted in ascending order of what they
  /// own; exact for plain shards.
  [[nodiscard]] std::int64_t owner_number(std::int64_t index) const {
    std::int64_t number = 0;
    std::int64_t length = length_;
    for (const auto& split : splits_) {
      const Split::Place place = split.locate(length, index);
      number = number * split.count + place.chunk;
      length = split.local_size(length, place.chunk);
      index = place.local;
    }
    return number;
  }

 private:
  /// Visits the runs from `index` to the end of what the outer cuts keep together; returns where
  /// that is. Only the first run of such siblings pays for the divisions.
  template <typename Visit>
  std::int64_t walk_siblings(std::int64_t index, std::int64_t end, Visit& visit) const {
    std::int64_t length = length_;
    std::int64_t local = index;
    std::int64_t offset = 0;
    for (std::size_t i = 0; i + 1 < splits_.size(); ++i) {
      const Split::Place place = splits_[i].locate(length, local);
      offset += place.chunk * strides_[i];
      end = std::min(end, index + place.run);
      length = splits_[i].local_size(length, place.chunk);
      local = place.local;
    }
    const Split& innermost = splits_.back();
    Split::Place place = innermost.locate(length, local);
    if (innermost.pieces > 1) {
      const std::int64_t size = std::min(place.run, end - index);
      visit(index, size, offset + place.chunk * strides_.back());
      return index + size;
    }
    const std::int64_t step = ceil_divide(length, innermost.count);
    while (index < end) {
      const std::int64_t size = std::min(place.run, end - index);
      visit(index, size, offset + place.chunk * strides_.back());
      index += size;
      ++place.chunk;
      place.run = step;
    }
    return index;
  }

  std::span<const Split> splits_;
  std::vector<std::int64_t> strides_;
  std::int64_t length_;
};

void group_runs(Segments& segments) {
  auto& runs = segments.runs;
  segments.groups.reserve(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto& groups = segments.groups;
    if (groups.empty() || groups.back().offset != runs[i].offset) {
      groups.push_back({runs[i].offset, 0, i, 0});
    }
    groups.back().size += runs[i].local.size;
    ++groups.back().count;
  }
}

}  // namespace

Segments segments_by_owner(const IndexSet& owned, const Layout& other, std::int64_t dim) {
  Segments segments;
  const OwnerWalk owners(other, dim);
  std::int64_t passed = 0;
  std::int64_t previous_end = -1;
  bool strided = owned.runs().size() > 1;
  for (const auto& split : other.splits(dim)) strided |= split.pieces > 1;
  segments.runs.reserve(static_cast<std::size_t>(max_owner_count(owned, other, dim)));
  for (const auto& run : owned.runs()) {
    owners.walk(run, [&](std::int64_t begin, std::int64_t size, std::int64_t offset) {
      auto& runs = segments.runs;
      // Neighbours with the same owner are one run, so that both sides find the same boxes.
      if (!runs.empty() && runs.back().offset == offset && previous_end == begin) {
        runs.back().local.size += size;
      } else {
        runs.push_back({{passed, size}, offset});
      }
      passed += size;
      previous_end = begin + size;
    });
  }
  if (strided) {
    std::stable_sort(segments.runs.begin(), segments.runs.end(),
                     [](const auto& a, const auto& b) { return a.offset < b.offset; });
  }
  group_runs(segments);
  return segments;
}

std::int64_t max_owner_count(const IndexSet& owned, const Layout& other, std::int64_t dim) {
  if (owned.empty()) return 0;
  std::int64_t owners = 1;
  bool strided = false;
  for (const auto& split : other.splits(dim)) {
    owners *= split.count;
    strided |= split.pieces > 1;
  }
  const std::int64_t most = std::min(owners, owned.size());
  if (strided || most == 1) return most;
  const OwnerWalk walk(other, dim);
  std::int64_t touched = 0;
  for (const auto& run : owned.runs()) {
    touched += walk.owner_number(run.end() - 1) - walk.owner_number(run.begin) + 1;
  }
  return std::min(touched, most);
}

}  // namespace tessera::detail
