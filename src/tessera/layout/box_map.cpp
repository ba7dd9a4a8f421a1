#include "tessera/layout/box_map.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ostream>
#include <set>
#include <utility>

#include "tessera/base/check.h"

namespace tessera {
namespace {

/// Calls visit(box) for every product of one run per dim.
template <typename Visit>
void for_each_box(const Part& part, const Visit& visit) {
  std::vector<std::size_t> chosen(part.dims.size(), 0);
  while (true) {
    Box box;
    for (std::size_t d = 0; d < chosen.size(); ++d) {
      box.dims.push_back(part.dims[d].runs()[chosen[d]]);
    }
    visit(std::move(box));
    std::size_t d = chosen.size();
    while (d > 0 && chosen[d - 1] + 1 == part.dims[d - 1].runs().size()) chosen[--d] = 0;
    if (d == 0) return;
    ++chosen[d - 1];
  }
}

/// The place of a part without elements: where dims are not empty they say what the others would be.
Box empty_box(const Layout& layout, const Part& part) {
  Box box;
  for (std::size_t d = 0; d < part.dims.size(); ++d) {
    const auto& runs = part.dims[d].runs();
    box.dims.push_back(runs.empty() ? Extent{layout.shape()[d], 0}
                                    : Extent{runs.front().begin, part.dims[d].size()});
  }
  return box;
}

bool has_elements(const Box& box) { return box.numel() > 0; }

/// The dim along which the boxes begin at the most different places.
std::size_t best_dim(const std::vector<OwnedBox>& boxes) {
  std::size_t best = 0;
  std::size_t most = 0;
  const std::size_t ndim = boxes.empty() ? 0 : boxes.front().box.dims.size();
  for (std::size_t d = 0; d < ndim; ++d) {
    std::set<std::int64_t> begins;
    for (const auto& owned : boxes) begins.insert(owned.box.dims[d].begin);
    if (begins.size() > most) {
      most = begins.size();
      best = d;
    }
  }
  return best;
}

/// The cuts of one dim, in ascending order; nothing unless they are those of `chunk_extent`.
std::optional<std::vector<Extent>> chunks_along(const BoxMap& map, std::size_t dim) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (const auto& owned : map.boxes()) {
    seen.emplace(owned.box.dims[dim].begin, owned.box.dims[dim].size);
  }
  std::vector<Extent> cuts;
  const auto count = static_cast<std::int64_t>(seen.size());
  for (const auto& [begin, size] : seen) {
    cuts.push_back({begin, size});
    if (cuts.back() != chunk_extent(map.shape()[dim], count, std::ssize(cuts) - 1)) return {};
  }
  return cuts;
}

}  // namespace

std::int64_t Box::numel() const {
  std::int64_t numel = 1;
  for (const auto& extent : dims) numel *= extent.size;
  return numel;
}

Shape Box::shape() const {
  Shape shape;
  for (const auto& extent : dims) shape.push_back(extent.size);
  return shape;
}

std::ostream& operator<<(std::ostream& os, const Box& box) {
  return os << (box.dims.empty() ? "scalar" : joined(box.dims, " x "));
}

Box whole_box(const Shape& shape) {
  Box box;
  for (const auto size : shape) box.dims.push_back({0, size});
  return box;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box common;
  common.dims.reserve(a.dims.size());
  for (std::size_t d = 0; d < a.dims.size(); ++d) {
    const std::int64_t begin = std::max(a.dims[d].begin, b.dims[d].begin);
    const std::int64_t end = std::min(a.dims[d].end(), b.dims[d].end());
    if (begin >= end) return std::nullopt;
    common.dims.push_back({begin, end - begin});
  }
  return common;
}

BoxMap::BoxMap(Shape shape, std::vector<OwnedBox> boxes)
    : shape_(std::move(shape)), boxes_(std::move(boxes)) {
  for (const auto size : shape_) {
    TESSERA_CHECK(size >= 0, "BoxMap: a size of ", size, " given; sizes must be >= 0");
  }
  std::map<std::int64_t, std::size_t> count;
  for (const auto& [box, rank] : boxes_) {
    TESSERA_CHECK(rank >= 0, "BoxMap: rank ", rank, " given; ranks must be >= 0");
    TESSERA_CHECK(box.dims.size() == shape_.size(), "BoxMap: box ", box, " given for shape [",
                  joined(shape_, ","), "]; give one extent per dim");
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      const Extent& extent = box.dims[d];
      TESSERA_CHECK(extent.begin >= 0 && extent.size >= 0 && extent.begin <= shape_[d] &&
                        extent.size <= shape_[d] - extent.begin,
                    "BoxMap: box ", box, " given, which reaches outside of shape [",
                    joined(shape_, ","), "]");
    }
    pieces_.push_back(count[rank]++);
    most_pieces_ = std::max(most_pieces_, pieces_.back() + 1);
  }
}

BoxMap BoxMap::on_one_rank(Shape shape, std::int64_t rank) {
  Box box = whole_box(shape);
  return BoxMap(std::move(shape), {{std::move(box), rank}});
}

BoxMap BoxMap::of(const Layout& layout) {
  TESSERA_CHECK(!layout.has_partial(), "BoxMap: ", layout,
                " given; contributions own no elements, so reduce them first");
  std::vector<OwnedBox> boxes;
  for (std::int64_t position = 0; position < layout.mesh().num_ranks(); ++position) {
    const Part part = layout.part_at(position);
    const std::int64_t rank = layout.mesh().rank_at(position);
    if (part.numel() == 0) {
      boxes.push_back({empty_box(layout, part), rank});
      continue;
    }
    for_each_box(part, [&](Box box) { boxes.push_back({std::move(box), rank}); });
  }
  return BoxMap(layout.shape(), std::move(boxes));
}

std::vector<Box> BoxMap::held_by(std::int64_t rank) const {
  std::vector<Box> held;
  for (const auto& owned : boxes_) {
    if (owned.rank == rank) held.push_back(owned.box);
  }
  return held;
}

std::optional<Overlap> find_overlap(const std::vector<OwnedBox>& boxes) {
  const std::size_t dim = best_dim(boxes);
  const bool has_dims = !boxes.empty() && !boxes.front().box.dims.empty();
  const auto extent = [&](std::size_t i) {
    return has_dims ? boxes[i].box.dims[dim] : Extent{0, 1};
  };
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t i) { return !has_elements(boxes[i].box); });
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(extent(a).begin, a) < std::pair(extent(b).begin, b);
  });
  std::optional<Overlap> found;
  std::vector<std::size_t> open;  // Those that the sweep has entered and not left.
  for (const auto i : order) {
    std::erase_if(open, [&](std::size_t j) { return extent(j).end() <= extent(i).begin; });
    for (const auto j : open) {
      if (!intersection(boxes[i].box, boxes[j].box)) continue;
      const Overlap pair{std::min(i, j), std::max(i, j)};
      const auto key = [](const Overlap& o) { return std::pair(o.first, o.second); };
      if (!found || key(pair) < key(*found)) found = pair;
    }
    open.push_back(i);
  }
  return found;
}

std::optional<Layout> find_layout(const BoxMap& map) {
  std::vector<std::int64_t> sizes;
  Placements placements;
  std::vector<std::vector<Extent>> cuts;
  std::int64_t cells = 1;
  for (std::size_t d = 0; d < map.shape().size(); ++d) {
    auto chunks = chunks_along(map, d);
    if (!chunks) return std::nullopt;
    const std::int64_t count = std::ssize(*chunks);
    if (count > 1) {
      sizes.push_back(count);
      placements.emplace_back(Shard(static_cast<std::int64_t>(d)));
    }
    cells *= count;
    cuts.push_back(std::move(*chunks));
  }
  if (map.most_pieces() != 1 || cells != std::ssize(map.boxes())) return std::nullopt;
  std::vector<std::int64_t> ranks(map.boxes().size(), -1);
  for (const auto& [box, rank] : map.boxes()) {
    std::size_t cell = 0;
    for (std::size_t d = 0; d < cuts.size(); ++d) {
      const auto at = std::find(cuts[d].begin(), cuts[d].end(), box.dims[d]) - cuts[d].begin();
      cell = cell * cuts[d].size() + static_cast<std::size_t>(at);
    }
    if (ranks[cell] >= 0) return std::nullopt;
    ranks[cell] = rank;
  }
  if (sizes.empty()) {
    sizes.push_back(1);
    placements.emplace_back(Replicate());
  }
  return Layout(MeshShape(std::move(sizes), {}, std::move(ranks)), std::move(placements),
                map.shape());
}

}  // namespace tessera
