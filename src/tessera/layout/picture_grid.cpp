#include "tessera/layout/picture_grid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/base/concat.h"

namespace tessera::picture {
namespace {

/// What a horizontal line shows where it meets the vertical ones: at its left end, within, at its
/// right end.
struct Crossings {
  const char* left;
  const char* middle;
  const char* right;
};

Crossings crossings(const Pen& pen, bool top, bool bottom) {
  if (pen.ascii) return {"+", "+", "+"};
  if (top) return {"┌", "┬", "┐"};
  if (bottom) return {"└", "┴", "┘"};
  return {"├", "┼", "┤"};
}

std::string rule(const std::vector<std::size_t>& widths, const Pen& pen, const Crossings& marks) {
  std::string line = marks.left;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    line += repeated(pen.across(), widths[i]);
    line += i + 1 < widths.size() ? marks.middle : marks.right;
  }
  return line;
}

/// Numbers centred above the lines between columns; `margin` columns precede the first line.
std::string ruler(const std::vector<std::string>& ticks, const std::vector<std::size_t>& widths,
                  std::size_t margin) {
  std::string line;
  std::size_t at = margin;
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    const std::size_t half = (ticks[i].size() - 1) / 2;
    line = pad_right(line, at - std::min(at, half));
    line += ticks[i];
    if (i < widths.size()) at += widths[i] + 1;
  }
  return line;
}

}  // namespace

int rank_color(std::int64_t rank) {
  // Light backgrounds, neighbours far apart in hue.
  constexpr std::array kPalette = {117, 222, 120, 217, 183, 159, 216, 193, 147, 229, 115, 225};
  return kPalette[static_cast<std::size_t>(rank) % kPalette.size()];
}

std::vector<std::size_t> Grid::column_widths() const {
  const std::size_t count = column_sizes.size();
  std::vector<std::size_t> least(count, 3);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < count; ++i) {
      least[i] = std::max(least[i], display_width(row[i].text) + 2);
    }
  }
  for (std::size_t i = 0; i + 1 < column_ticks.size(); ++i) {
    // A tick reaches half to the left of its line and half to the right; one blank separates two.
    const std::size_t right_half = column_ticks[i].size() / 2;
    const std::size_t left_half = (column_ticks[i + 1].size() - 1) / 2;
    least[i] = std::max(least[i], right_half + left_half + 1);
  }
  // Characters are twice as high as wide: with this a tall picture does not look like a pole.
  std::size_t full =
      std::clamp<std::size_t>(4 * rows.size() / std::max<std::size_t>(count, 1), 7, 27);
  std::int64_t largest = 1;
  for (std::size_t i = 0; i < count; ++i) {
    full = std::max(full, least[i]);
    largest = std::max(largest, column_sizes[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(column_sizes[i]) / static_cast<double>(largest);
    const auto wanted = std::lround(share * static_cast<double>(full));
    // Odd, so that a single digit sits in the middle.
    least[i] = std::max(least[i], static_cast<std::size_t>(wanted) | 1);
  }
  return least;
}

std::size_t Grid::margin() const {
  std::size_t widest = 0;
  for (const auto& tick : row_ticks) widest = std::max(widest, tick.size() + 1);
  // The first column's tick may begin to the left of its line.
  if (!column_ticks.empty()) widest = std::max(widest, (column_ticks[0].size() - 1) / 2);
  return widest;
}

std::size_t Grid::width() const {
  std::size_t total = margin() + 1;
  for (const auto column : column_widths()) total += column + 1;
  return total + (column_ticks.empty() ? 0 : column_ticks.back().size() / 2);
}

std::string Grid::draw(const Pen& pen) const {
  const auto widths = column_widths();
  const std::size_t left = margin();
  const auto tick = [&](std::size_t row) {
    return row_ticks.empty() ? repeated(" ", left) : pad_left(row_ticks[row], left - 1) + " ";
  };
  std::string text;
  if (!column_ticks.empty()) text += finished(ruler(column_ticks, widths, left));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    text += finished(tick(row) + rule(widths, pen, crossings(pen, row == 0, false)));
    std::string line = repeated(" ", left) + pen.down();
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const auto& cell = rows[row][i];
      line += painted(pad_both(cell.text, widths[i]), cell.color, pen) + pen.down();
    }
    text += finished(std::move(line));
  }
  return text + finished(tick(rows.size()) + rule(widths, pen, crossings(pen, false, true)));
}

std::size_t display_width(std::string_view line) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      // A colour escape runs up to its `m`.
      i = std::min(line.find('m', i), line.size());
    } else if ((static_cast<unsigned char>(line[i]) & 0xc0U) != 0x80U) {
      ++width;
    }
  }
  return width;
}

std::string pad_left(std::string_view text, std::size_t width) {
  return repeated(" ", width - std::min(width, display_width(text))).append(text);
}

std::string pad_right(std::string_view text, std::size_t width) {
  return std::string(text).append(width - std::min(width, display_width(text)), ' ');
}

std::string pad_both(std::string_view text, std::size_t width) {
  const std::size_t blanks = width - std::min(width, display_width(text));
  return repeated(" ", blanks / 2).append(text).append(blanks - blanks / 2, ' ');
}

std::string painted(const std::string& text, int color, const Pen& pen) {
  if (!pen.color || color == kNoColor) return text;
  return concat("\x1b[38;5;16;48;5;", color, "m", text, "\x1b[0m");
}

std::string repeated(std::string_view text, std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) result += text;
  return result;
}

std::string finished(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace tessera::picture
