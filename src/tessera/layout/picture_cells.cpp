#include "tessera/layout/picture_cells.h"

#include <algorithm>

#include "tessera/base/concat.h"

namespace tessera::picture {
namespace {

/// Where one index falls, and where the run of indices that goes with it ends.
struct Located {
  std::vector<std::int64_t> chunks;
  std::int64_t end;
};

Located locate(const Layout& layout, std::int64_t dim, std::int64_t index) {
  std::int64_t length = layout.shape()[static_cast<std::size_t>(dim)];
  Located located{{}, length};
  std::int64_t local = index;
  for (const auto& split : layout.splits(dim)) {
    const auto place = split.locate(length, local);
    located.chunks.push_back(place.chunk);
    located.end = std::min(located.end, index + place.run);
    length = split.local_size(length, place.chunk);
    local = place.local;
  }
  return located;
}

/// The segment that begins at `begin`. Neighbouring runs may fall to the same ranks: when a piece
/// of a strided shard is too short for all of them, it ends with the ranks that the next begins
/// with.
Segment segment_from(const Layout& layout, std::int64_t dim, std::int64_t begin) {
  const std::int64_t length = layout.shape()[static_cast<std::size_t>(dim)];
  auto [chunks, end] = locate(layout, dim, begin);
  while (end < length) {
    const auto next = locate(layout, dim, end);
    if (next.chunks != chunks) break;
    end = next.end;
  }
  return {{begin, end - begin}, std::move(chunks)};
}

/// The first index of the run that `index` is in: all indices of a run know the same end.
std::int64_t run_begin(const Layout& layout, std::int64_t dim, std::int64_t index) {
  const std::int64_t end = locate(layout, dim, index).end;
  std::int64_t low = 0;
  std::int64_t high = index;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (locate(layout, dim, middle).end == end) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// The segment that ends at `end`.
Segment segment_until(const Layout& layout, std::int64_t dim, std::int64_t end) {
  std::int64_t begin = run_begin(layout, dim, end - 1);
  auto chunks = locate(layout, dim, begin).chunks;
  while (begin > 0 && locate(layout, dim, begin - 1).chunks == chunks) {
    begin = run_begin(layout, dim, begin - 1);
  }
  return {{begin, end - begin}, std::move(chunks)};
}

/// Appends to every coordinate's copy all indices of mesh dim `dim`.
void spread(const MeshShape& mesh, std::int64_t dim, std::vector<std::int64_t>& positions) {
  std::vector<std::int64_t> all;
  all.reserve(positions.size() * static_cast<std::size_t>(mesh.size(dim)));
  for (const auto position : positions) {
    for (std::int64_t i = 0; i < mesh.size(dim); ++i) {
      all.push_back(position + i * mesh.stride(dim));
    }
  }
  positions = std::move(all);
}

}  // namespace

const Segment* Segments::slot(std::size_t index) const {
  if (!gap || index < *gap) return &shown[index];
  return index == *gap ? nullptr : &shown[index - 1];
}

Segments segments_of(const Layout& layout, std::int64_t dim, std::int64_t max_slots) {
  const std::int64_t length = layout.shape()[static_cast<std::size_t>(dim)];
  const auto most = static_cast<std::size_t>(max_slots);
  Segments segments;
  std::int64_t begin = 0;
  while (begin < length && segments.shown.size() < most) {
    segments.shown.push_back(segment_from(layout, dim, begin));
    begin = segments.shown.back().extent.end();
  }
  if (begin == length) return segments;

  const std::size_t head = most / 2;
  segments.gap = head;
  segments.shown.resize(most - 1);
  std::int64_t end = length;
  for (std::size_t i = most - 1; i > head; --i) {
    segments.shown[i - 1] = segment_until(layout, dim, end);
    end = segments.shown[i - 1].extent.begin;
  }
  return segments;
}

std::vector<std::int64_t> Owners::all_ranks() const {
  std::vector<std::int64_t> ranks;
  for (const auto& group : groups) ranks.insert(ranks.end(), group.begin(), group.end());
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

Owners owners_of(const Layout& layout, const std::vector<const Segment*>& segments) {
  const MeshShape& mesh = layout.mesh();
  std::int64_t corner = 0;
  for (std::size_t dim = 0; dim < segments.size(); ++dim) {
    if (segments[dim] == nullptr) continue;
    const auto splits = layout.splits(static_cast<std::int64_t>(dim));
    for (std::size_t i = 0; i < splits.size(); ++i) {
      corner += segments[dim]->chunks[i] * mesh.stride(splits[i].mesh_dim);
    }
  }
  std::vector<std::int64_t> copies = {corner};
  std::vector<std::int64_t> contributors = {0};
  for (std::int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    const auto& placement = layout.placements()[static_cast<std::size_t>(dim)];
    if (is_partial(placement)) {
      spread(mesh, dim, contributors);
    } else if (is_replicate(placement)) {
      spread(mesh, dim, copies);
    }
  }
  Owners owners;
  for (const auto copy : copies) {
    auto& group = owners.groups.emplace_back();
    for (const auto offset : contributors) group.push_back(mesh.rank_at(copy + offset));
    std::sort(group.begin(), group.end());
  }
  std::sort(owners.groups.begin(), owners.groups.end());
  return owners;
}

std::vector<std::int64_t> ranks_without_elements(const Layout& layout) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t position = 0; position < layout.mesh().num_ranks(); ++position) {
    if (layout.local_numel(position) == 0) ranks.push_back(layout.mesh().rank_at(position));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string rank_list(const std::vector<std::int64_t>& ranks, std::size_t max_width,
                      const std::string& dots) {
  std::vector<std::string> runs;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    const char* between = last == first + 1 ? "," : "-";
    runs.push_back(first == last ? concat(ranks[first])
                                 : concat(ranks[first], between, ranks[last]));
    first = last + 1;
  }
  std::string text = joined(runs, ",");
  if (text.size() <= max_width || runs.size() <= 2) return text;
  const std::string& last = runs.back();
  text = concat(runs[0], ",", runs[1], ",");
  // `dots` shows as one to three columns; three are assumed.
  if (text.size() + 4 + last.size() > max_width) text = runs[0] + ",";
  return concat(text, dots, ",", last);
}

}  // namespace tessera::picture
