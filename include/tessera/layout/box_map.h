#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "tessera/layout/chunk.h"
#include "tessera/layout/layout.h"

namespace tessera {

/// A box of a tensor: one extent per tensor dim. Without dims it is the one element of a scalar.
struct Box {
  std::vector<Extent> dims;

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] Shape shape() const;
  bool operator==(const Box&) const = default;
};

/// Prints `[0, 4) x [2, 6)`; `scalar` for no dims.
std::ostream& operator<<(std::ostream& os, const Box& box);

/// Returns all of a tensor of `shape`.
[[nodiscard]] Box whole_box(const Shape& shape);

/// Returns the elements that both have; nothing when there are none. Both must have as many dims.
[[nodiscard]] std::optional<Box> intersection(const Box& a, const Box& b);

/// A box and the global rank that holds it.
struct OwnedBox {
  Box box;
  std::int64_t rank = 0;

  bool operator==(const OwnedBox&) const = default;
};

/// Who owns what, as a list of boxes: the general form, where a `Layout` is the regular one.
///
/// A rank may hold any number of boxes, none among them, and boxes may be empty. The order in which
/// a rank's boxes are listed numbers its *pieces*: piece 1 of a rank is its second box in the list.
class BoxMap {
 public:
  /// Throws `InvalidArgument` unless sizes are >= 0, all boxes have one extent per dim that lies
  /// within the shape, and ranks are >= 0.
  BoxMap(Shape shape, std::vector<OwnedBox> boxes);

  /// The whole tensor on one rank.
  [[nodiscard]] static BoxMap on_one_rank(Shape shape, std::int64_t rank);
  /// What the ranks of a layout hold; replicas are listed for every rank that has one. A rank that
  /// holds nothing is listed with an empty box, so that its local tensor is one piece as well; parts
  /// of several runs (strided shards) are as many boxes. Throws `InvalidArgument` for `Partial`.
  [[nodiscard]] static BoxMap of(const Layout& layout);

  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<OwnedBox>& boxes() const { return boxes_; }
  /// Which piece of its rank box `index` is.
  [[nodiscard]] std::size_t piece(std::size_t index) const { return pieces_[index]; }
  /// The rank's boxes, in the order of its pieces.
  [[nodiscard]] std::vector<Box> held_by(std::int64_t rank) const;
  /// How many boxes the rank with the most of them has.
  [[nodiscard]] std::size_t most_pieces() const { return most_pieces_; }

  bool operator==(const BoxMap& other) const {
    return shape_ == other.shape_ && boxes_ == other.boxes_;
  }

 private:
  Shape shape_;
  std::vector<OwnedBox> boxes_;
  std::vector<std::size_t> pieces_;
  std::size_t most_pieces_ = 0;
};

/// Two boxes, by their places in a list, that share elements.
struct Overlap {
  std::size_t first;
  std::size_t second;
};

/// Returns two boxes of a list that overlap, the first such pair in the order of the list; nothing
/// when there are none. All must have as many dims. Sorts along one dim, so boxes that are cut along
/// it are compared with their neighbours only.
[[nodiscard]] std::optional<Overlap> find_overlap(const std::vector<OwnedBox>& boxes);

/// Returns a layout that gives every rank what the map does, if the boxes form a grid: every dim is
/// cut as `chunk_extent` cuts it, every cell of the grid is one box, and no rank has two. The mesh
/// has one dim for each tensor dim that is cut; ranks without a box are outside of it.
///
/// Quarters of a matrix on ranks 2, 0, 1, 3 are `[S(0),S(1)]` on a mesh `[2, 2] @{2,0,1,3}`.
[[nodiscard]] std::optional<Layout> find_layout(const BoxMap& map);

}  // namespace tessera
