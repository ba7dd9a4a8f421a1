#include "tessera/layout/picture.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "tessera/base/check.h"
#include "tessera/layout/picture_cells.h"
#include "tessera/layout/picture_grid.h"

namespace tessera {

void picture::check_options(const char* function, const PictureOptions& options) {
  TESSERA_CHECK(options.max_cells >= 3, function, ": max_cells ", options.max_cells,
                " given; it must be at least 3: a first cell, the dots and a last one");
  TESSERA_CHECK(options.max_width >= 1, function, ": max_width ", options.max_width,
                " given; it must be at least 1");
}

namespace {

using picture::Grid;
using picture::GridCell;
using picture::Owners;
using picture::Pen;
using picture::Segment;
using picture::Segments;

constexpr std::size_t kLabelWidth = 14;

/// How a legend names what the contributions become.
const char* reduced_value(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::avg:
      return "average";
    case ReduceOp::min:
      return "minimum";
    case ReduceOp::max:
      return "maximum";
    case ReduceOp::product:
      return "product";
    case ReduceOp::band:
      return "bitwise and";
    case ReduceOp::bor:
      return "bitwise or";
    case ReduceOp::bxor:
      return "bitwise exclusive or";
  }
  return "";
}

std::string reduce_sign(ReduceOp op, const Pen& pen) {
  if (!pen.ascii && op == ReduceOp::sum) return "Σ";
  if (!pen.ascii && op == ReduceOp::product) return "Π";
  return to_string(op);
}

/// Draws one layout: the choice of dims, their segments, the cells, and the lines around them.
class LayoutPicture {
 public:
  LayoutPicture(const Layout& layout, const PictureOptions& options)
      : layout_(layout), options_(options), pen_{options.ascii, options.color} {
    choose_dims();
  }

  [[nodiscard]] std::string text() const {
    std::string lines;
    if (options_.caption) lines += concat(layout_, '\n');
    if (layout_.numel() == 0) return lines + "no elements: no rank holds anything\n";
    return lines + dims_line() + slabs() + legend() + empty_ranks();
  }

 private:
  /// Rows and columns are the last two dims that are cut, or as many and others at the end; all
  /// other cut dims make slabs.
  void choose_dims() {
    std::vector<std::int64_t> cut;
    std::vector<std::int64_t> whole;
    for (std::int64_t dim = 0; dim < layout_.ndim(); ++dim) {
      (layout_.splits(dim).empty() ? whole : cut).push_back(dim);
    }
    std::vector<std::int64_t> drawn;
    while (drawn.size() < 2 && !(cut.empty() && whole.empty())) {
      auto& from = cut.empty() ? whole : cut;
      drawn.push_back(from.back());
      from.pop_back();
    }
    std::sort(drawn.begin(), drawn.end());
    if (!drawn.empty()) column_dim_ = drawn.back();
    if (drawn.size() == 2) row_dim_ = drawn.front();
    slab_dims_ = std::move(cut);
    whole_dims_ = std::move(whole);
  }

  [[nodiscard]] std::string dims_line() const {
    if (layout_.ndim() <= 2) return "";
    std::string line = concat("rows: dim ", *row_dim_, ", columns: dim ", *column_dim_);
    if (!whole_dims_.empty()) {
      line += concat("; whole on every rank: dim ", joined(whole_dims_, ", "));
    }
    return line + "\n";
  }

  /// One picture per block of the dims that are cut but not drawn; at most `max_cells`.
  [[nodiscard]] std::string slabs() const {
    std::vector<Segments> along;
    for (const auto dim : slab_dims_) {
      along.push_back(picture::segments_of(layout_, dim, options_.max_cells));
    }
    std::string text;
    std::vector<std::size_t> at(along.size(), 0);
    std::int64_t drawn = 0;
    bool after_gap = false;
    bool more = true;
    while (more) {
      const std::string next = slab(along, at);
      if (!next.empty() && ++drawn > options_.max_cells) {
        return text + concat(pen_.dots(), " and more slabs\n");
      }
      if (!next.empty() && after_gap) text += concat(pen_.dots(), '\n');
      after_gap = next.empty();
      text += next;
      more = false;
      for (std::size_t i = along.size(); i-- > 0 && !more;) {
        more = ++at[i] < along[i].num_slots();
        if (!more) at[i] = 0;
      }
    }
    return text;
  }

  /// One slab with its caption; nothing when it is elided.
  [[nodiscard]] std::string slab(const std::vector<Segments>& along,
                                 const std::vector<std::size_t>& at) const {
    std::vector<const Segment*> segments(static_cast<std::size_t>(layout_.ndim()), nullptr);
    std::vector<std::string> where;
    for (std::size_t i = 0; i < along.size(); ++i) {
      const Segment* segment = along[i].slot(at[i]);
      if (segment == nullptr) return "";
      segments[static_cast<std::size_t>(slab_dims_[i])] = segment;
      where.push_back(concat("dim ", slab_dims_[i], " in ", segment->extent));
    }
    return (where.empty() ? "" : joined(where) + ":\n") + fitting_grid(segments).draw(pen_);
  }

  /// The most columns that fit the width.
  [[nodiscard]] Grid fitting_grid(const std::vector<const Segment*>& segments) const {
    std::int64_t columns = options_.max_cells;
    Grid fitting = grid(segments, columns);
    while (columns > 3 && fitting.width() > static_cast<std::size_t>(options_.max_width)) {
      columns = std::min<std::int64_t>(columns, std::ssize(fitting.column_sizes)) - 1;
      fitting = grid(segments, std::max<std::int64_t>(columns, 3));
    }
    return fitting;
  }

  [[nodiscard]] Grid grid(std::vector<const Segment*> segments, std::int64_t max_columns) const {
    const auto rows = row_dim_ ? picture::segments_of(layout_, *row_dim_, options_.max_cells)
                               : Segments{{Segment{}}, {}};
    const auto columns = column_dim_ ? picture::segments_of(layout_, *column_dim_, max_columns)
                                     : Segments{{Segment{}}, {}};
    Grid result;
    if (row_dim_) result.row_ticks = ticks(rows);
    if (column_dim_) result.column_ticks = ticks(columns);
    for (std::size_t i = 0; i < columns.num_slots(); ++i) {
      const Segment* segment = columns.slot(i);
      result.column_sizes.push_back(segment == nullptr ? 0 : segment->extent.size);
    }
    for (std::size_t row = 0; row < rows.num_slots(); ++row) {
      auto& cells = result.rows.emplace_back();
      for (std::size_t column = 0; column < columns.num_slots(); ++column) {
        if (row_dim_) segments[static_cast<std::size_t>(*row_dim_)] = rows.slot(row);
        if (column_dim_) segments[static_cast<std::size_t>(*column_dim_)] = columns.slot(column);
        const bool elided = rows.slot(row) == nullptr || columns.slot(column) == nullptr;
        cells.push_back(elided ? GridCell{pen_.dots()}
                               : cell(picture::owners_of(layout_, segments)));
      }
    }
    return result;
  }

  [[nodiscard]] static std::vector<std::string> ticks(const Segments& segments) {
    std::vector<std::string> numbers;
    for (std::size_t i = 0; i < segments.num_slots(); ++i) {
      const Segment* segment = segments.slot(i);
      numbers.push_back(std::to_string(segment != nullptr ? segment->extent.begin
                                                          : segments.slot(i - 1)->extent.end()));
    }
    numbers.push_back(std::to_string(segments.shown.back().extent.end()));
    return numbers;
  }

  [[nodiscard]] GridCell cell(const Owners& owners) const {
    const auto ranks = owners.all_ranks();
    const bool all = std::ssize(ranks) == layout_.mesh().num_ranks() && ranks.size() > 1;
    return {label(owners), all ? picture::kSharedColor : picture::rank_color(ranks.front())};
  }

  [[nodiscard]] std::string label(const Owners& owners) const {
    if (!layout_.has_partial()) {
      return picture::rank_list(owners.all_ranks(), kLabelWidth, pen_.dots());
    }
    const std::string sign = reduce_sign(*layout_.reduce_op(), pen_);
    const auto ranks_of = [&](const std::vector<std::int64_t>& group) {
      return picture::rank_list(group, kLabelWidth, pen_.dots());
    };
    if (owners.groups.size() == 1) return concat(sign, ' ', ranks_of(owners.groups[0]));
    std::vector<std::string> groups;
    for (const auto& group : owners.groups) {
      groups.push_back(concat(sign, '(', ranks_of(group), ')'));
    }
    if (groups.size() > 2) return concat(groups[0], ' ', pen_.dots(), ' ', groups.back());
    return joined(groups, " ");
  }

  /// Says what a label of a Partial tensor means, by the example of the first cell.
  [[nodiscard]] std::string legend() const {
    if (!layout_.has_partial()) return "";
    std::vector<const Segment*> first(static_cast<std::size_t>(layout_.ndim()), nullptr);
    const Owners owners = picture::owners_of(layout_, first);
    if (owners.groups.size() > 1) {
      return concat(label(owners), ": the ", reduction(),
                    " of what the ranks of a group hold, the same in every group\n");
    }
    return concat(label(owners), ": the ", reduction(), " of what ranks ",
                  picture::rank_list(owners.groups[0], kLabelWidth, pen_.dots()), " hold\n");
  }

  /// `sum`, or which over which mesh dim when sums and averages mix.
  [[nodiscard]] std::string reduction() const {
    std::vector<std::string> parts;
    bool mixed = false;
    for (std::size_t i = 0; i < layout_.placements().size(); ++i) {
      const auto* partial = std::get_if<Partial>(&layout_.placements()[i]);
      const auto dim = static_cast<std::int64_t>(i);
      if (partial == nullptr || layout_.mesh().size(dim) == 1) continue;
      mixed = mixed || partial->op != layout_.reduce_op();
      parts.push_back(
          concat(reduced_value(partial->op), " over mesh dim ", layout_.mesh().dim_label(dim)));
    }
    return mixed ? joined(parts, " and ") : reduced_value(*layout_.reduce_op());
  }

  [[nodiscard]] std::string empty_ranks() const {
    const auto ranks = picture::ranks_without_elements(layout_);
    if (ranks.empty()) return "";
    if (ranks.size() == 1) return concat("rank ", ranks[0], " holds nothing\n");
    return concat("ranks ", picture::rank_list(ranks, 3 * kLabelWidth, pen_.dots()),
                  " hold nothing", ranks.size() > 8 ? concat(" (", ranks.size(), " of them)") : "",
                  '\n');
  }

  const Layout& layout_;
  const PictureOptions& options_;
  Pen pen_;
  std::optional<std::int64_t> row_dim_;
  std::optional<std::int64_t> column_dim_;
  std::vector<std::int64_t> slab_dims_;
  std::vector<std::int64_t> whole_dims_;
};

}  // namespace

std::string draw(const Layout& layout, const PictureOptions& options) {
  picture::check_options("draw", options);
  return LayoutPicture(layout, options).text();
}

std::string beside(std::string_view left, std::string_view between, std::string_view right) {
  const auto left_lines = picture::lines_of(left);
  const auto right_lines = picture::lines_of(right);
  const std::size_t height = std::max(left_lines.size(), right_lines.size());
  const std::size_t left_width = picture_width(left);
  const std::string blank = picture::repeated(" ", picture::display_width(between));
  std::string text;
  for (std::size_t i = 0; i < height; ++i) {
    std::string line = picture::pad_right(i < left_lines.size() ? left_lines[i] : "", left_width);
    line += i == (height - 1) / 2 ? between : blank;
    if (i < right_lines.size()) line += right_lines[i];
    text += picture::finished(std::move(line));
  }
  return text;
}

std::size_t picture_width(std::string_view text) {
  std::size_t width = 0;
  for (const auto line : picture::lines_of(text)) {
    width = std::max(width, picture::display_width(line));
  }
  return width;
}

}  // namespace tessera
