#include <algorithm>
#include <optional>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/layout/picture.h"
#include "tessera/layout/picture_grid.h"

namespace tessera {
namespace {

using picture::Pen;

/// The indices along a mesh dim of `size` that get a slot; nothing stands for the elided ones.
std::vector<std::optional<std::int64_t>> slots_of(std::int64_t size, std::int64_t max_slots) {
  std::vector<std::optional<std::int64_t>> slots;
  const std::int64_t head = size <= max_slots ? size : max_slots / 2;
  const std::int64_t tail = size <= max_slots ? 0 : max_slots - 1 - head;
  for (std::int64_t i = 0; i < head; ++i) slots.emplace_back(i);
  if (head < size) slots.emplace_back(std::nullopt);
  for (std::int64_t i = size - tail; i < size; ++i) slots.emplace_back(i);
  return slots;
}

class MeshPicture {
 public:
  MeshPicture(const MeshShape& mesh, const PictureOptions& options)
      : mesh_(mesh),
        options_(options),
        pen_{options.ascii, options.color},
        rank_width_(std::to_string(mesh.max_rank()).size()) {
    if (mesh.ndim() >= 1) {
      const std::string last_column = std::to_string(mesh.size(mesh.ndim() - 1) - 1);
      rank_width_ = std::max(rank_width_, last_column.size());
      columns_ = fitting_columns();
    }
    if (mesh.ndim() >= 2) rows_ = slots_of(mesh.size(mesh.ndim() - 2), options.max_cells);
  }

  [[nodiscard]] std::string text() const {
    std::string lines = options_.caption ? concat(mesh_, '\n') : "";
    const std::int64_t slab_ranks =
        mesh_.ndim() <= 2 ? mesh_.num_ranks() : mesh_.stride(mesh_.ndim() - 3);
    const std::int64_t num_slabs = mesh_.num_ranks() / slab_ranks;
    for (const auto& slab : slots_of(num_slabs, options_.max_cells)) {
      lines += slab ? slab_caption(*slab * slab_ranks) + grid(*slab * slab_ranks)
                    : concat(pen_.dots(), '\n');
    }
    return lines;
  }

 private:
  /// Columns until the width is reached, but at least three slots.
  [[nodiscard]] std::vector<std::optional<std::int64_t>> fitting_columns() const {
    const auto cell = static_cast<std::int64_t>(rank_width_ + 2);
    const std::int64_t fitting = (options_.max_width - margin() - 3) / cell;
    return slots_of(mesh_.size(mesh_.ndim() - 1),
                    std::clamp<std::int64_t>(fitting, 3, options_.max_cells));
  }

  [[nodiscard]] std::string dim_name(std::int64_t dim) const {
    return (mesh_.names().empty() ? "dim " : "") + mesh_.dim_label(dim);
  }

  /// What stands to the left of the box: names of dims and indices of rows.
  [[nodiscard]] std::int64_t margin() const {
    std::size_t width = 0;
    for (std::int64_t dim = std::max<std::int64_t>(mesh_.ndim() - 2, 0); dim < mesh_.ndim();
         ++dim) {
      width = std::max(width, dim_name(dim).size());
    }
    if (mesh_.ndim() >= 2) {
      width = std::max(width, std::to_string(mesh_.size(mesh_.ndim() - 2) - 1).size());
    }
    return static_cast<std::int64_t>(width);
  }

  [[nodiscard]] std::string slab_caption(std::int64_t position) const {
    std::vector<std::string> where;
    const Coordinate coordinate = mesh_.coordinate_at(position);
    for (std::int64_t dim = 0; dim + 2 < mesh_.ndim(); ++dim) {
      where.push_back(concat(dim_name(dim), " = ", coordinate[static_cast<std::size_t>(dim)]));
    }
    return where.empty() ? "" : joined(where) + ":\n";
  }

  /// A cell with one blank on either side, the number to the right.
  [[nodiscard]] std::string cell(const std::string& text) const {
    return " " + picture::pad_left(text, rank_width_) + " ";
  }

  [[nodiscard]] std::string elided_cell() const {
    return cell(pen_.ascii ? picture::repeated(".", std::min<std::size_t>(rank_width_, 3)) : "…");
  }

  [[nodiscard]] std::string grid(std::int64_t first_position) const {
    const auto left = static_cast<std::size_t>(margin());
    std::string header =
        picture::pad_left(columns_.empty() ? "" : dim_name(mesh_.ndim() - 1), left);
    header += "  ";
    for (const auto& column : columns_) {
      header += column ? cell(std::to_string(*column)) : elided_cell();
    }
    std::string text = columns_.empty() ? "" : picture::finished(header);

    const std::size_t inside = std::max<std::size_t>(columns_.size(), 1) * (rank_width_ + 2);
    const std::string across = picture::repeated(pen_.across(), inside);
    const auto border = [&](const std::string& name, const char* start, const char* end) {
      return picture::finished(picture::pad_left(name, left) + (left > 0 ? " " : "") +
                               (pen_.ascii ? "+" : start) + across + (pen_.ascii ? "+" : end));
    };
    text += border(rows_.empty() ? "" : dim_name(mesh_.ndim() - 2), "┌", "┐");
    if (rows_.empty()) text += row_of("", left, first_position, true);
    for (const auto& row : rows_) {
      text += row_of(row ? std::to_string(*row) : "", left,
                     first_position + row.value_or(0) * mesh_.stride(mesh_.ndim() - 2),
                     row.has_value());
    }
    return text + border("", "└", "┘");
  }

  /// One row of ranks, or of dots when it is elided.
  [[nodiscard]] std::string row_of(const std::string& name, std::size_t left,
                                   std::int64_t first_position, bool shown) const {
    std::string line = picture::pad_left(name, left) + (left > 0 ? " " : "") + pen_.down();
    if (columns_.empty()) line += rank_cell(first_position);
    for (const auto& column : columns_) {
      line += shown && column ? rank_cell(first_position + *column) : elided_cell();
    }
    return picture::finished(line + pen_.down());
  }

  [[nodiscard]] std::string rank_cell(std::int64_t position) const {
    const std::int64_t rank = mesh_.rank_at(position);
    return picture::painted(cell(std::to_string(rank)), picture::rank_color(rank), pen_);
  }

  const MeshShape& mesh_;
  const PictureOptions& options_;
  Pen pen_;
  std::size_t rank_width_;
  std::vector<std::optional<std::int64_t>> columns_;
  std::vector<std::optional<std::int64_t>> rows_;
};

}  // namespace

std::string draw_mesh(const MeshShape& mesh, const PictureOptions& options) {
  picture::check_options("draw_mesh", options);
  return MeshPicture(mesh, options).text();
}

}  // namespace tessera
