#include "tessera/plan/step.h"

#include <algorithm>
#include <array>
#include <ostream>

#include "tessera/base/check.h"
#include "tessera/plan/exchange.h"
#include "tessera/plan/roles.h"

namespace tessera {
namespace {

constexpr std::array<const char*, 7> kKindNames = {
    "slice", "fill", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "exchange"};

/// Appends the boxes that hold elements [begin, end) of a box in row-major order: a partial row in
/// front, whole rows, a partial row behind, each cut further in the next dim.
class FlatRange {
 public:
  FlatRange(std::span<const Extent> box, RankStep::Piece& piece)
      : box_(box), piece_(piece), prefix_(box.begin(), box.end()) {}

  void add(std::int64_t begin, std::int64_t end) { add_rows(0, begin, end); }

 private:
  void add_rows(std::size_t dim, std::int64_t begin, std::int64_t end) {
    if (begin == end) return;
    std::int64_t row = 1;
    for (std::size_t d = dim + 1; d < box_.size(); ++d) row *= box_[d].size;
    if (dim == box_.size() || (begin == 0 && end == row * box_[dim].size)) {
      emit(dim);
      return;
    }
    const std::int64_t first_whole = (begin + row - 1) / row;
    const std::int64_t last_whole = end / row;
    if (first_whole > last_whole) {  // Both ends within one row.
      add_row_part(dim, begin / row, begin % row, end - begin / row * row);
      return;
    }
    if (begin % row != 0) add_row_part(dim, begin / row, begin % row, row);
    if (first_whole < last_whole) {
      prefix_[dim] = {box_[dim].begin + first_whole, last_whole - first_whole};
      emit(dim + 1);
    }
    if (end % row != 0) add_row_part(dim, last_whole, 0, end % row);
  }

  void add_row_part(std::size_t dim, std::int64_t index, std::int64_t begin, std::int64_t end) {
    prefix_[dim] = {box_[dim].begin + index, 1};
    add_rows(dim + 1, begin, end);
  }

  /// Adds one box: the extents chosen up to `dim`, all of the box from there on.
  void emit(std::size_t dim) {
    piece_.extents.insert(piece_.extents.end(), prefix_.begin(),
                          prefix_.begin() + static_cast<std::ptrdiff_t>(dim));
    const auto rest = box_.subspan(std::min(dim, box_.size()));
    piece_.extents.insert(piece_.extents.end(), rest.begin(), rest.end());
    ++piece_.box_count;
  }

  std::span<const Extent> box_;
  RankStep::Piece& piece_;
  std::vector<Extent> prefix_;
};

std::int64_t box_numel(std::span<const Extent> box) {
  std::int64_t numel = 1;
  for (const auto& extent : box) numel *= extent.size;
  return numel;
}

}  // namespace

const char* to_string(StepKind kind) { return kKindNames.at(static_cast<std::size_t>(kind)); }

std::ostream& operator<<(std::ostream& os, StepKind kind) { return os << to_string(kind); }

std::ostream& operator<<(std::ostream& os, const Step& step) {
  os << step.kind;
  std::vector<std::string> where;
  const bool named = !step.from.mesh().names().empty();
  for (const auto dim : step.mesh_dims) {
    where.push_back(concat(named ? "" : "mesh dim ", step.from.mesh().dim_label(dim)));
  }
  if (step.tensor_dim >= 0) where.push_back(concat("dim ", step.tensor_dim));
  if (!where.empty()) os << '(' << joined(where) << ')';
  os << ": " << step.from.placements_text() << " -> " << step.to.placements_text();
  if (!step.from.mesh().same_ranks(step.to.mesh())) {
    os << " from " << step.from.mesh() << " to " << step.to.mesh();
  }
  if (step.rounds > 1) os << " in " << step.rounds << " rounds";
  return os;
}

std::span<const Extent> RankStep::box(const Message& message, std::size_t index) const {
  const std::size_t ndim = std::max(in_shape.size(), out_shape.size());
  return std::span(extents).subspan((message.first_box + index) * ndim, ndim);
}

RankStep::Piece RankStep::piece(const Message& message, std::int64_t round) const {
  TESSERA_CHECK(round >= 0 && round < rounds, "RankStep::piece: round ", round,
                " given; the step has ", rounds);
  const Extent whole = {message.numel / rounds * round + std::min(round, message.numel % rounds),
                        message.numel / rounds + (round < message.numel % rounds ? 1 : 0)};
  Piece piece;
  piece.numel = whole.size;
  std::int64_t passed = 0;
  for (std::size_t i = 0; i < message.box_count; ++i) {
    const auto extents_of_box = box(message, i);
    const std::int64_t numel = box_numel(extents_of_box);
    const std::int64_t begin = std::max(whole.begin, passed);
    const std::int64_t end = std::min(whole.end(), passed + numel);
    if (begin < end) FlatRange(extents_of_box, piece).add(begin - passed, end - passed);
    passed += numel;
  }
  return piece;
}

RankStep rank_step(const Step& step, std::int64_t rank) {
  const detail::Roles roles(step.from, step.to);
  // A fill that makes shards into contributions leaves them where they are, which the exchange,
  // sending everything to one contributor, would not.
  RankStep own = step.kind == StepKind::fill && !roles.local
                     ? detail::fill_messages(step.from, step.to, rank)
                     : detail::exchange_messages(roles, rank);
  own.rounds = step.rounds;
  return own;
}

std::vector<std::int64_t> step_group(const Step& step, std::int64_t rank) {
  TESSERA_CHECK(!step.mesh_dims.empty(), "step_group: ", step,
                " given; only a collective along mesh dims has groups");
  return step.from.mesh().slice_dims(step.mesh_dims, rank).ranks();
}

}  // namespace tessera
