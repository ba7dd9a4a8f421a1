#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/layout/layout.h"
#include "tessera/layout/mesh_shape.h"

namespace tessera {

/// How a picture is drawn.
struct PictureOptions {
  /// Draw with `+-|` and words only; otherwise with box-drawing characters and signs in UTF-8.
  bool ascii = false;
  /// Paint every cell in its rank's colour, with ANSI escapes. Dark text on a light cell, so that
  /// it can be read on dark and on light terminals.
  bool color = false;
  /// Begin with a line that names what is drawn.
  bool caption = true;
  /// At most so many rows, columns and slabs; what lies between the first and the last ones is
  /// elided. At least 3.
  std::int64_t max_cells = 16;
  /// Elide more columns until the picture is no wider than this, as long as three remain. At
  /// least 1.
  std::int64_t max_width = 100;
};

/// Returns a picture of who owns what, one cell per block that the same ranks own:
///
///     [6,8][S(0),S(1)] on [dp=2, tp=2]
///       0       4       8
///     0 ┌───────┬───────┐
///       │   0   │   1   │
///     3 ├───────┼───────┤
///       │   2   │   3   │
///     6 └───────┴───────┘
///
/// The numbers at the lines are indices: rank 1 owns rows 0 to 2 and columns 4 to 7. Rows are
/// tensor dim 0 and columns dim 1; a tensor of one dim is one row. Cells say `0` for a rank, `0,1`
/// or `0-3` for ranks that all hold the block, and `Σ 0-3` for ranks that hold contributions to it,
/// with a legend below. Ranks that hold nothing are listed below.
///
/// Of more than two dims, two are drawn, sharded ones first, and a line says which; when more than
/// two are sharded, one slab follows the other.
///
/// The cost depends on the number of ranks and of cells drawn, not on the tensor's size. Every line
/// ends in a newline. Throws `InvalidArgument` when an option is out of its range.
[[nodiscard]] std::string draw(const Layout& layout, const PictureOptions& options = {});

/// Returns a picture of which rank sits where in a mesh:
///
///     [dp=2, tp=4]
///     tp   0  1  2  3
///     dp ┌────────────┐
///      0 │ 0  1  2  3 │
///      1 │ 4  5  6  7 │
///        └────────────┘
///
/// The last two mesh dims are rows and columns; of more, one slab follows the other. Throws
/// `InvalidArgument` when an option is out of its range.
[[nodiscard]] std::string draw_mesh(const MeshShape& mesh, const PictureOptions& options = {});

/// Returns two pictures next to each other, with `between` at half height: `draw(from)`, `" -> "`,
/// `draw(to)` in a few lines. Colours and UTF-8 are measured as a terminal shows them.
[[nodiscard]] std::string beside(std::string_view left, std::string_view between,
                                 std::string_view right);

/// Returns how many columns a terminal needs for the widest line of `text`, a picture or several
/// `beside` each other.
[[nodiscard]] std::size_t picture_width(std::string_view text);

}  // namespace tessera
