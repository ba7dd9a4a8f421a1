#include "tessera/layout/placement.h"

#include <array>
#include <optional>
#include <ostream>
#include <sstream>

#include "tessera/base/check.h"
#include "tessera/layout/text_reader.h"

namespace tessera {
namespace {

constexpr std::array<const char*, 8> kOpNames = {"sum",     "avg",  "min", "max",
                                                 "product", "band", "bor", "bxor"};

std::optional<ReduceOp> find_reduce_op(std::string_view name) {
  for (std::size_t i = 0; i < kOpNames.size(); ++i) {
    if (name == kOpNames[i]) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

struct PlacementPrinter {
  std::ostream& os;

  void operator()(const Replicate&) const { os << 'R'; }
  void operator()(const Shard& shard) const { os << "S(" << shard.dim << ')'; }
  void operator()(const StridedShard& shard) const {
    os << "SS(" << shard.dim << ',' << shard.split_factor << ')';
  }
  void operator()(const Partial& partial) const { os << "P(" << partial.op << ')'; }
};

std::optional<Placement> read_strided(detail::TextReader& reader) {
  if (!reader.accept("(")) return std::nullopt;
  const auto dim = reader.accept_integer();
  if (!dim || !reader.accept(",")) return std::nullopt;
  const auto pieces = reader.accept_integer();
  if (!pieces || !reader.accept(")")) return std::nullopt;
  return StridedShard(*dim, *pieces);
}

std::optional<Placement> read_shard(detail::TextReader& reader) {
  const bool bracket = reader.accept("(");
  const auto dim = reader.accept_integer();
  if (!dim || (bracket && !reader.accept(")"))) return std::nullopt;
  return Shard(*dim);
}

std::optional<Placement> read_partial(detail::TextReader& reader) {
  if (!reader.accept("(")) return Partial();
  const auto op = find_reduce_op(reader.accept_name());
  if (!op || !reader.accept(")")) return std::nullopt;
  return Partial(*op);
}

std::optional<Placement> read_placement(detail::TextReader& reader) {
  if (reader.accept("SS")) return read_strided(reader);
  if (reader.accept("S")) return read_shard(reader);
  if (reader.accept("P")) return read_partial(reader);
  if (reader.accept("R")) return Replicate();
  return std::nullopt;
}

constexpr const char* kAllowed =
    "allowed are R, S(dim), SS(dim,split_factor) and P(op) with op one of ";

}  // namespace

const char* to_string(ReduceOp op) { return kOpNames.at(static_cast<std::size_t>(op)); }

std::ostream& operator<<(std::ostream& os, ReduceOp op) { return os << to_string(op); }

ReduceOp parse_reduce_op(std::string_view text) {
  const auto op = find_reduce_op(text);
  TESSERA_CHECK(op.has_value(), "parse_reduce_op: \"", text, "\" given; allowed are ",
                joined(kOpNames));
  return *op;
}

std::ostream& operator<<(std::ostream& os, const Placement& placement) {
  std::visit(PlacementPrinter{os}, placement);
  return os;
}

std::string to_string(const Placement& placement) { return concat(placement); }

std::string to_string(const Placements& placements) {
  return concat('[', joined(placements, ","), ']');
}

Placement parse_placement(std::string_view text) {
  detail::TextReader reader(text);
  const auto placement = read_placement(reader);
  TESSERA_CHECK(placement && reader.at_end(), "parse_placement: \"", text, "\" given; ", kAllowed,
                joined(kOpNames));
  return *placement;
}

Placements parse_placements(std::string_view text) {
  detail::TextReader reader(text);
  const bool bracket = reader.accept("[");
  Placements placements;
  bool more = bracket ? !reader.accept("]") : !reader.at_end();
  while (more) {
    const auto placement = read_placement(reader);
    const bool separated = placement && reader.accept(",");
    const bool ended = placement && !separated && (!bracket || reader.accept("]"));
    TESSERA_CHECK(separated || ended, "parse_placements: \"", text,
                  "\" given; pass a comma-separated list such as [S(0),R]; ", kAllowed,
                  joined(kOpNames));
    placements.push_back(*placement);
    more = separated;
  }
  TESSERA_CHECK(reader.at_end(), "parse_placements: \"", text,
                "\" given; the list ends before the text does: separate placements with commas");
  return placements;
}

}  // namespace tessera
