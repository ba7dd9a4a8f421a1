#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/layout/picture.h"

namespace tessera::picture {

/// Throws `InvalidArgument` in the name of `function` when an option is out of its range.
void check_options(const char* function, const PictureOptions& options);

/// The characters to draw with: box drawing in UTF-8, or ASCII.
struct Pen {
  bool ascii = false;
  bool color = false;

  [[nodiscard]] const char* across() const { return ascii ? "-" : "─"; }
  [[nodiscard]] const char* down() const { return ascii ? "|" : "│"; }
  [[nodiscard]] const char* dots() const { return ascii ? "..." : "…"; }
};

/// A rank's colour: the number in the terminal's table of 256. `kSharedColor` is for what all ranks
/// hold, `kNoColor` for what is not painted.
[[nodiscard]] int rank_color(std::int64_t rank);
inline constexpr int kNoColor = -1;
inline constexpr int kSharedColor = 252;

/// Text in the middle of a cell, on a background.
struct GridCell {
  std::string text;
  int color = kNoColor;
};

/// A box of cells with a line between any two, and a number at every line.
struct Grid {
  /// One vector per row, all of the same length.
  std::vector<std::vector<GridCell>> rows;
  /// What is written at the lines, one more than there are columns or rows; none when empty.
  std::vector<std::string> column_ticks;
  std::vector<std::string> row_ticks;
  /// One per column: its share of the width, so that short blocks look short. A column is never
  /// narrower than its texts.
  std::vector<std::int64_t> column_sizes;

  /// How many columns the widest line takes.
  [[nodiscard]] std::size_t width() const;
  /// The lines, each with a newline and without blanks at its end.
  [[nodiscard]] std::string draw(const Pen& pen) const;

 private:
  [[nodiscard]] std::vector<std::size_t> column_widths() const;
  [[nodiscard]] std::size_t margin() const;
};

/// Returns how many columns a terminal needs for one line of UTF-8, ANSI escapes not counted.
[[nodiscard]] std::size_t display_width(std::string_view line);

/// Returns `text` with blanks on the left, on the right, or on both sides (one more on the right),
/// up to `width` columns.
[[nodiscard]] std::string pad_left(std::string_view text, std::size_t width);
[[nodiscard]] std::string pad_right(std::string_view text, std::size_t width);
[[nodiscard]] std::string pad_both(std::string_view text, std::size_t width);

/// Returns `text` on a background of `color`, dark on light whatever the terminal's own colours;
/// as it is when the pen has no colours or `color` is `kNoColor`.
[[nodiscard]] std::string painted(const std::string& text, int color, const Pen& pen);

/// Returns `text` `count` times.
[[nodiscard]] std::string repeated(std::string_view text, std::size_t count);

/// Returns `line` without blanks at its end, and a newline.
[[nodiscard]] std::string finished(std::string line);

/// Returns the lines of `text`, without their newlines.
[[nodiscard]] std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace tessera::picture
