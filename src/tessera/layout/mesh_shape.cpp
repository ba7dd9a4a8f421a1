#include "tessera/layout/mesh_shape.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <ostream>
#include <unordered_map>
#include <unordered_set>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"
#include "tessera/layout/text_reader.h"

namespace tessera {

struct MeshShape::Record {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::vector<std::string> names;
  std::int64_t num_ranks = 1;
  // Both empty when the ranks are 0, 1, 2, ...: meshes of many thousand ranks stay small.
  std::vector<std::int64_t> ranks;
  std::unordered_map<std::int64_t, std::int64_t> positions;
  std::size_t hash = 0;
};

namespace {

bool is_name(const std::string& text) {
  return !text.empty() && detail::TextReader(text).accept_name().size() == text.size();
}

void check_names(const std::vector<std::int64_t>& sizes, const std::vector<std::string>& names) {
  if (names.empty()) return;
  TESSERA_CHECK(names.size() == sizes.size(), "MeshShape: ", names.size(), " name(s) given for ",
                sizes.size(), " dim(s) of sizes [", joined(sizes),
                "]; mesh_shape and mesh_dim_names should have same length: pass one name per dim "
                "or none");
  std::unordered_set<std::string_view> seen;
  for (const auto& name : names) {
    TESSERA_CHECK(
        is_name(name), "MeshShape: name \"", name, "\" given among [", joined(names),
        "]; names are letters, digits and underscores and do not start with a digit: name "
        "every dim so, or none");
    TESSERA_CHECK(seen.insert(name).second, "MeshShape: name \"", name,
                  "\" given twice; Each mesh_dim_name must be unique");
  }
}

std::int64_t checked_product(const std::vector<std::int64_t>& sizes) {
  std::int64_t product = 1;
  for (const auto size : sizes) {
    TESSERA_CHECK(size >= 1, "MeshShape: sizes [", joined(sizes),
                  "] given; every mesh dim must have at least 1 rank");
    TESSERA_CHECK(product <= std::numeric_limits<std::int64_t>::max() / size, "MeshShape: sizes [",
                  joined(sizes), "] given; the number of ranks does not fit 64 bits");
    product *= size;
  }
  return product;
}

bool counts_up_from_zero(const std::vector<std::int64_t>& ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

std::unordered_map<std::int64_t, std::int64_t> invert(const std::vector<std::int64_t>& ranks) {
  std::unordered_map<std::int64_t, std::int64_t> positions;
  positions.reserve(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    TESSERA_CHECK(ranks[i] >= 0, "MeshShape: rank ", ranks[i], " given; ranks are numbered from 0");
    TESSERA_CHECK(positions.emplace(ranks[i], static_cast<std::int64_t>(i)).second,
                  "MeshShape: rank ", ranks[i], " given twice; every rank has one place in a mesh");
  }
  return positions;
}

std::string ranks_suffix(const std::vector<std::int64_t>& ranks) {
  if (ranks.empty()) return "";
  bool consecutive = true;
  for (std::size_t i = 1; i < ranks.size(); ++i) consecutive &= ranks[i] == ranks[i - 1] + 1;
  if (consecutive && ranks.size() > 1) return concat("@", ranks.front(), "..", ranks.back());
  constexpr std::size_t kShown = 16;
  const std::vector<std::int64_t> shown(
      ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, ranks.size())));
  return concat("@{", joined(shown, ","), ranks.size() > kShown ? ",...}" : "}");
}

}  // namespace

MeshShape::MeshShape(std::vector<std::int64_t> sizes, std::vector<std::string> names,
                     std::vector<std::int64_t> ranks) {
  check_names(sizes, names);
  auto record = std::make_shared<Record>();
  record->num_ranks = checked_product(sizes);
  TESSERA_CHECK(ranks.empty() || static_cast<std::int64_t>(ranks.size()) == record->num_ranks,
                "MeshShape: ", ranks.size(), " rank(s) given for sizes [", joined(sizes),
                "], which need ", record->num_ranks,
                "; pass one rank per position, in row-major order, or none");
  record->strides.resize(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    record->strides[i] = stride;
    stride *= sizes[i];
  }
  if (!counts_up_from_zero(ranks)) {
    record->positions = invert(ranks);
    record->ranks = std::move(ranks);
  }
  record->hash =
      hash_combine(hash_combine(hash_range(sizes), hash_range(names)), hash_range(record->ranks));
  record->sizes = std::move(sizes);
  record->names = std::move(names);
  record_ = std::move(record);
}

namespace {

/// Reads `@4..7` or `@{0,2,5}`; nothing when it is neither.
std::optional<std::vector<std::int64_t>> read_ranks(detail::TextReader& reader) {
  std::vector<std::int64_t> ranks;
  const bool listed = reader.accept("{");
  do {
    const auto rank = reader.accept_integer();
    if (!rank) return std::nullopt;
    ranks.push_back(*rank);
  } while (listed && reader.accept(","));
  if (listed) return reader.accept("}") ? std::optional(ranks) : std::nullopt;
  const auto last = reader.accept("..") ? reader.accept_integer() : std::nullopt;
  constexpr std::int64_t kMostRanks = 1 << 24;
  if (!last || ranks.front() < 0 || *last < ranks.front()) return std::nullopt;
  if (*last - ranks.front() >= kMostRanks) return std::nullopt;
  while (ranks.back() < *last) ranks.push_back(ranks.back() + 1);
  return ranks;
}

}  // namespace

MeshShape MeshShape::parse(std::string_view text) {
  detail::TextReader reader(text);
  const bool bracket = reader.accept("[");
  std::vector<std::int64_t> sizes;
  std::vector<std::string> names;
  bool well_formed = true;
  bool more = bracket ? !reader.accept("]") : !reader.at_end();
  while (more && well_formed) {
    const std::string_view name = reader.accept_name();
    if (!name.empty()) names.emplace_back(name);
    well_formed = name.empty() || reader.accept("=");
    const auto size = well_formed ? reader.accept_integer() : std::nullopt;
    sizes.push_back(size.value_or(0));
    more = reader.accept(",");
    well_formed = size.has_value() && (more || !bracket || reader.accept("]"));
  }
  std::optional<std::vector<std::int64_t>> ranks;
  if (well_formed && reader.accept("@")) {
    ranks = read_ranks(reader);
    well_formed = ranks.has_value();
  }
  TESSERA_CHECK(
      well_formed && reader.at_end() && (names.empty() || names.size() == sizes.size()),
      "MeshShape::parse: \"", text,
      "\" given; pass sizes with names such as dp=2,tp=4, or sizes alone such as 2,4, and "
      "behind them, where the ranks are not 0, 1, 2, ..., @4..11 or @{0,2,5}");
  return MeshShape(std::move(sizes), std::move(names),
                   ranks ? std::move(*ranks) : std::vector<std::int64_t>());
}

std::int64_t MeshShape::ndim() const { return static_cast<std::int64_t>(record_->sizes.size()); }

const std::vector<std::int64_t>& MeshShape::sizes() const { return record_->sizes; }

const std::vector<std::string>& MeshShape::names() const { return record_->names; }

std::int64_t MeshShape::num_ranks() const { return record_->num_ranks; }

std::int64_t MeshShape::size(std::int64_t dim) const {
  TESSERA_CHECK(dim >= 0 && dim < ndim(), "MeshShape::size: mesh dim ", dim, " given; ", *this,
                " has ", ndim(), " dim(s), numbered from 0");
  return record_->sizes[static_cast<std::size_t>(dim)];
}

std::int64_t MeshShape::stride(std::int64_t dim) const {
  TESSERA_CHECK(dim >= 0 && dim < ndim(), "MeshShape::stride: mesh dim ", dim, " given; ", *this,
                " has ", ndim(), " dim(s), numbered from 0");
  return record_->strides[static_cast<std::size_t>(dim)];
}

std::int64_t MeshShape::dim_named(std::string_view name) const {
  const auto& all = record_->names;
  const auto found = std::find(all.begin(), all.end(), name);
  TESSERA_CHECK(found != all.end(), "MeshShape::dim_named: mesh dim \"", name,
                "\" does not exist in ", *this,
                all.empty() ? "; this mesh has no names: give them when it is made"
                            : "; use one of its names");
  return found - all.begin();
}

std::string MeshShape::dim_label(std::int64_t dim) const {
  (void)size(dim);  // Refuses a dim that does not exist.
  return record_->names.empty() ? std::to_string(dim)
                                : record_->names.at(static_cast<std::size_t>(dim));
}

std::int64_t MeshShape::rank_at(std::int64_t position) const {
  TESSERA_CHECK(position >= 0 && position < num_ranks(), "MeshShape::rank_at: position ", position,
                " given; ", *this, " has positions 0 to ", num_ranks() - 1);
  return record_->ranks.empty() ? position : record_->ranks[static_cast<std::size_t>(position)];
}

std::int64_t MeshShape::rank_at(const Coordinate& coordinate) const {
  return rank_at(position_at(coordinate));
}

std::vector<std::int64_t> MeshShape::ranks() const {
  if (!record_->ranks.empty()) return record_->ranks;
  std::vector<std::int64_t> all(static_cast<std::size_t>(num_ranks()));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

std::int64_t MeshShape::max_rank() const {
  return record_->ranks.empty() ? num_ranks() - 1
                                : *std::max_element(record_->ranks.begin(), record_->ranks.end());
}

std::optional<std::int64_t> MeshShape::position_of(std::int64_t rank) const {
  if (record_->ranks.empty()) {
    return rank >= 0 && rank < num_ranks() ? std::optional(rank) : std::nullopt;
  }
  const auto found = record_->positions.find(rank);
  return found == record_->positions.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Coordinate> MeshShape::coordinate_of(std::int64_t rank) const {
  const auto position = position_of(rank);
  return position ? std::optional(coordinate_at(*position)) : std::nullopt;
}

Coordinate MeshShape::coordinate_at(std::int64_t position) const {
  TESSERA_CHECK(position >= 0 && position < num_ranks(), "MeshShape::coordinate_at: position ",
                position, " given; ", *this, " has positions 0 to ", num_ranks() - 1);
  Coordinate coordinate(record_->sizes.size());
  for (std::size_t i = 0; i < coordinate.size(); ++i) {
    coordinate[i] = position / record_->strides[i] % record_->sizes[i];
  }
  return coordinate;
}

std::int64_t MeshShape::position_at(const Coordinate& coordinate) const {
  TESSERA_CHECK(static_cast<std::int64_t>(coordinate.size()) == ndim(),
                "MeshShape::position_at: coordinate (", joined(coordinate), ") given; ", *this,
                " needs ", ndim(), " indices");
  std::int64_t position = 0;
  for (std::size_t i = 0; i < coordinate.size(); ++i) {
    TESSERA_CHECK(coordinate[i] >= 0 && coordinate[i] < record_->sizes[i],
                  "MeshShape::position_at: coordinate (", joined(coordinate), ") given; ", *this,
                  " has indices 0 to ", record_->sizes[i] - 1, " in mesh dim ",
                  dim_label(static_cast<std::int64_t>(i)));
    position += coordinate[i] * record_->strides[i];
  }
  return position;
}

MeshShape MeshShape::slice(const std::vector<std::string>& dim_names, std::int64_t rank) const {
  std::vector<std::int64_t> dims;
  dims.reserve(dim_names.size());
  for (const auto& name : dim_names) dims.push_back(dim_named(name));
  return slice_dims(dims, rank);
}

MeshShape MeshShape::slice_dims(std::span<const std::int64_t> dims, std::int64_t rank) const {
  const auto through = position_of(rank);
  TESSERA_CHECK(through.has_value(), "MeshShape::slice: rank ", rank, " is not in ", *this,
                "; a slice passes through one of the mesh's own ranks");
  std::vector<std::int64_t> sizes;
  std::vector<std::string> names;
  std::vector<std::int64_t> positions{*through};
  std::vector<bool> taken(static_cast<std::size_t>(ndim()), false);
  for (const auto dim : dims) {
    const std::int64_t count = size(dim);
    const std::int64_t step = stride(dim);
    TESSERA_CHECK(!taken[static_cast<std::size_t>(dim)], "MeshShape::slice: mesh dim ",
                  dim_label(dim), " given twice; name every dim once");
    taken[static_cast<std::size_t>(dim)] = true;
    sizes.push_back(count);
    if (!record_->names.empty()) names.push_back(dim_label(dim));
    std::vector<std::int64_t> next;
    next.reserve(positions.size() * static_cast<std::size_t>(count));
    for (const auto position : positions) {
      const std::int64_t first = position - position / step % count * step;
      for (std::int64_t i = 0; i < count; ++i) next.push_back(first + i * step);
    }
    positions = std::move(next);
  }
  for (auto& position : positions) position = rank_at(position);
  return MeshShape(std::move(sizes), std::move(names), std::move(positions));
}

MeshShape MeshShape::flatten(std::string name) const {
  std::vector<std::string> names;
  if (!name.empty()) names.push_back(std::move(name));
  return MeshShape({num_ranks()}, std::move(names), record_->ranks);
}

MeshShape MeshShape::unflatten(std::int64_t dim, const std::vector<std::int64_t>& sizes,
                               const std::vector<std::string>& names) const {
  const std::int64_t old_size = size(dim);
  TESSERA_CHECK(checked_product(sizes) == old_size, "MeshShape::unflatten: sizes [", joined(sizes),
                "] given for mesh dim ", dim_label(dim), " of ", *this, "; their product must be ",
                old_size);
  const std::size_t expected_names = record_->names.empty() ? 0 : sizes.size();
  TESSERA_CHECK(names.size() == expected_names, "MeshShape::unflatten: ", names.size(),
                " name(s) given for ", sizes.size(), " new dim(s) of ", *this, "; pass ",
                expected_names, ": one for each if the mesh has names, none otherwise");
  std::vector<std::int64_t> all_sizes = record_->sizes;
  std::vector<std::string> all_names = record_->names;
  const auto at = static_cast<std::ptrdiff_t>(dim);
  all_sizes.insert(all_sizes.erase(all_sizes.begin() + at), sizes.begin(), sizes.end());
  if (!all_names.empty()) {
    all_names.insert(all_names.erase(all_names.begin() + at), names.begin(), names.end());
  }
  return MeshShape(std::move(all_sizes), std::move(all_names), record_->ranks);
}

std::size_t MeshShape::hash() const { return record_->hash; }

bool MeshShape::operator==(const MeshShape& other) const {
  return record_ == other.record_ || (record_->hash == other.record_->hash &&
                                      record_->names == other.record_->names && same_ranks(other));
}

bool MeshShape::same_ranks(const MeshShape& other) const {
  return record_ == other.record_ ||
         (record_->sizes == other.record_->sizes && record_->ranks == other.record_->ranks);
}

std::string MeshShape::to_string() const {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < record_->sizes.size(); ++i) {
    const std::string size = std::to_string(record_->sizes[i]);
    parts.push_back(record_->names.empty() ? size : record_->names[i] + "=" + size);
  }
  return concat('[', joined(parts), ']', ranks_suffix(record_->ranks));
}

std::ostream& operator<<(std::ostream& os, const MeshShape& mesh) { return os << mesh.to_string(); }

}  // namespace tessera
