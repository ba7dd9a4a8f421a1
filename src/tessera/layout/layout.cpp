#include "tessera/layout/layout.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <ostream>
#include <unordered_map>

#include "tessera/base/check.h"
#include "tessera/base/hash.h"

namespace tessera {

struct Layout::Record {
  MeshShape mesh;
  Placements placements;
  Shape shape;
  std::int64_t numel = 1;
  // The cuts of tensor dim d are splits[first_split[d] .. first_split[d + 1]).
  std::vector<Split> splits;
  std::vector<std::size_t> first_split;
  std::optional<ReduceOp> reduce_op;
  std::size_t hash = 0;

  bool same_contents(const Record& other) const {
    return hash == other.hash && mesh == other.mesh && placements == other.placements &&
           shape == other.shape && splits == other.splits;
  }
};

/// Finds the one record with given contents. Records are owned by the layouts alone; the last one
/// to let go takes its entry out again, so the table is never larger than what is alive.
class Layout::Interner {
 public:
  static std::shared_ptr<const Record> intern(std::unique_ptr<Record> candidate) {
    static auto& interner = *new Interner();  // Never destroyed: layouts may outlive `main`.
    return interner.find_or_add(std::move(candidate));
  }

 private:
  std::shared_ptr<const Record> find_or_add(std::unique_ptr<Record> candidate) {
    // Let go of only behind the lock, which `release` takes: another record with the same hash that
    // we look at may lose its other owners meanwhile, and ours if it cannot be added.
    std::vector<std::shared_ptr<const Record>> others;
    std::shared_ptr<const Record> added;
    const std::lock_guard lock(mutex_);
    const auto [first, last] = records_.equal_range(candidate->hash);
    for (auto it = first; it != last; ++it) {
      // A record whose last owner is just letting go cannot be locked: add it anew.
      auto found = it->second.lock();
      if (found && found->same_contents(*candidate)) return found;
      if (found) others.push_back(std::move(found));
    }
    added.reset(candidate.release(), [this](const Record* record) { release(record); });
    records_.emplace(added->hash, added);
    return added;
  }

  void release(const Record* record) {
    {
      const std::lock_guard lock(mutex_);
      const auto [first, last] = records_.equal_range(record->hash);
      for (auto it = first; it != last;) it = it->second.expired() ? records_.erase(it) : ++it;
    }
    delete record;
  }

  std::mutex mutex_;
  std::unordered_multimap<std::size_t, std::weak_ptr<const Record>> records_;
};

namespace {

void check_shape(const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t product = 1;
  for (const auto size : shape) {
    TESSERA_CHECK(size >= 0, "Layout: shape [", joined(shape),
                  "] given; sizes must be zero or more");
    TESSERA_CHECK(size == 0 || product <= kMost / size, "Layout: shape [", joined(shape),
                  "] given; the number of elements must fit 62 bits");
    product *= std::max<std::int64_t>(size, 1);
  }
}

/// Makes a negative shard dim count from the front and a strided shard of one piece a plain one;
/// checks range and split factor.
struct Normalise {
  const Shape& shape;

  std::int64_t checked_dim(const Placement& placement, std::int64_t dim) const {
    const auto ndim = static_cast<std::int64_t>(shape.size());
    TESSERA_CHECK(dim >= -ndim && dim < ndim, "Layout: placement ", placement,
                  " given for a tensor of shape [", joined(shape), "]; its ", ndim,
                  " dim(s) allow ",
                  ndim == 0 ? std::string("no shard at all: use R")
                            : concat("shard dims ", -ndim, " to ", ndim - 1));
    return dim < 0 ? dim + ndim : dim;
  }
  Placement operator()(const Replicate& placement) const { return placement; }
  Placement operator()(const Partial& placement) const { return placement; }
  Placement operator()(const Shard& placement) const {
    return Shard(checked_dim(placement, placement.dim));
  }
  Placement operator()(const StridedShard& placement) const {
    TESSERA_CHECK(placement.split_factor >= 1, "Layout: placement ", Placement(placement),
                  " given; split_factor must be at least 1");
    const std::int64_t dim = checked_dim(placement, placement.dim);
    if (placement.split_factor == 1) return Shard(dim);
    return StridedShard(dim, placement.split_factor);
  }
};

std::optional<ReduceOp> common_reduce_op(const MeshShape& mesh, const Placements& placements) {
  std::optional<ReduceOp> common;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const auto* partial = std::get_if<Partial>(&placements[i]);
    if (partial == nullptr || mesh.sizes()[i] == 1) continue;
    const bool linear = partial->op == ReduceOp::sum || partial->op == ReduceOp::avg;
    const bool agree = !common || *common == partial->op ||
                       (linear && (*common == ReduceOp::sum || *common == ReduceOp::avg));
    TESSERA_CHECK(agree, "Layout: Mixed Partial reduce types in placements ", to_string(placements),
                  " on ", mesh,
                  "; the result would depend on the order of reduction: use one op (sum and avg "
                  "may mix)");
    common = common && *common != partial->op ? ReduceOp::sum : partial->op;
  }
  return common;
}

std::vector<std::int64_t> checked_order(const MeshShape& mesh, std::vector<std::int64_t> order) {
  std::vector<std::int64_t> dims(static_cast<std::size_t>(mesh.ndim()));
  std::iota(dims.begin(), dims.end(), std::int64_t{0});
  if (order.empty()) return dims;
  TESSERA_CHECK(std::is_permutation(order.begin(), order.end(), dims.begin(), dims.end()),
                "Layout: shard_order (", joined(order), ") given for mesh ", mesh,
                "; pass every mesh dim once, the one that splits first in front");
  return order;
}

void check_position(const MeshShape& mesh, std::int64_t position) {
  TESSERA_CHECK(position >= 0 && position < mesh.num_ranks(), "Layout: position ", position,
                " given; ", mesh, " has positions 0 to ", mesh.num_ranks() - 1);
}

}  // namespace

std::int64_t Part::numel() const {
  std::int64_t product = 1;
  for (const auto& dim : dims) product *= dim.size();
  return product;
}

Shape Part::shape() const {
  Shape sizes;
  sizes.reserve(dims.size());
  for (const auto& dim : dims) sizes.push_back(dim.size());
  return sizes;
}

std::ostream& operator<<(std::ostream& os, const Part& part) {
  return os << (part.dims.empty() ? "scalar" : joined(part.dims, " x "));
}

Layout::Layout(MeshShape mesh, Placements placements, Shape shape,
               const std::vector<std::int64_t>& shard_order) {
  TESSERA_CHECK(static_cast<std::int64_t>(placements.size()) == mesh.ndim(),
                "Layout: ", placements.size(), " placement(s) ", tessera::to_string(placements),
                " given for mesh ", mesh, ", which has ", mesh.ndim(),
                " dim(s); pass one per mesh dim");
  check_shape(shape);
  for (auto& placement : placements) placement = std::visit(Normalise{shape}, placement);
  const auto order = checked_order(mesh, shard_order);

  auto record = std::make_unique<Record>(
      Record{std::move(mesh), std::move(placements), std::move(shape), 1, {}, {}, {}, 0});
  record->reduce_op = common_reduce_op(record->mesh, record->placements);
  for (std::size_t dim = 0; dim < record->shape.size(); ++dim) {
    record->numel *= record->shape[dim];
    record->first_split.push_back(record->splits.size());
    for (const auto mesh_dim : order) {
      const auto& placement = record->placements[static_cast<std::size_t>(mesh_dim)];
      const std::int64_t count = record->mesh.size(mesh_dim);
      if (count == 1 || !is_sharded(placement)) continue;
      const auto* plain = std::get_if<Shard>(&placement);
      const StridedShard shard =
          plain != nullptr ? StridedShard(plain->dim, 1) : std::get<StridedShard>(placement);
      if (shard.dim != static_cast<std::int64_t>(dim)) continue;
      record->splits.push_back({mesh_dim, count, shard.split_factor});
    }
  }
  record->first_split.push_back(record->splits.size());

  std::size_t hash = hash_combine(record->mesh.hash(), hash_range(record->placements));
  hash = hash_combine(hash, hash_range(record->shape));
  for (const auto& split : record->splits) {
    hash = hash_combine(hash, static_cast<std::size_t>(split.mesh_dim));
  }
  record->hash = hash;
  record_ = Interner::intern(std::move(record));
}

const MeshShape& Layout::mesh() const { return record_->mesh; }

const Placements& Layout::placements() const { return record_->placements; }

const Shape& Layout::shape() const { return record_->shape; }

std::int64_t Layout::ndim() const { return static_cast<std::int64_t>(record_->shape.size()); }

std::int64_t Layout::numel() const { return record_->numel; }

std::span<const Split> Layout::splits(std::int64_t dim) const {
  TESSERA_CHECK(dim >= 0 && dim < ndim(), "Layout: tensor dim ", dim, " given; ", *this, " has ",
                ndim(), " dim(s), numbered from 0");
  const auto& first = record_->first_split;
  const auto at = static_cast<std::size_t>(dim);
  return std::span(record_->splits).subspan(first[at], first[at + 1] - first[at]);
}

Part Layout::part_at(const Coordinate& coordinate) const {
  return part_at(mesh().position_at(coordinate));
}

Part Layout::part_at(std::int64_t position) const {
  check_position(mesh(), position);
  Part part;
  part.dims.reserve(shape().size());
  for (std::int64_t dim = 0; dim < ndim(); ++dim) part.dims.push_back(owned(dim, position));
  return part;
}

std::optional<Part> Layout::part_of(std::int64_t rank) const {
  const auto position = mesh().position_of(rank);
  return position ? std::optional(part_at(*position)) : std::nullopt;
}

IndexSet Layout::owned(std::int64_t dim, std::int64_t position) const {
  const auto cuts = splits(dim);
  check_position(mesh(), position);
  IndexSet owned(Extent{0, shape()[static_cast<std::size_t>(dim)]});
  for (const auto& split : cuts) {
    owned = split.take(owned, position / mesh().stride(split.mesh_dim) % split.count);
  }
  return owned;
}

std::int64_t Layout::local_size(std::int64_t dim, std::int64_t position) const {
  const auto cuts = splits(dim);
  check_position(mesh(), position);
  std::int64_t size = shape()[static_cast<std::size_t>(dim)];
  for (const auto& split : cuts) {
    size = split.local_size(size, position / mesh().stride(split.mesh_dim) % split.count);
  }
  return size;
}

Shape Layout::local_shape(std::int64_t position) const {
  Shape local;
  local.reserve(shape().size());
  for (std::int64_t dim = 0; dim < ndim(); ++dim) local.push_back(local_size(dim, position));
  return local;
}

std::int64_t Layout::local_numel(std::int64_t position) const {
  std::int64_t product = 1;
  for (std::int64_t dim = 0; dim < ndim(); ++dim) product *= local_size(dim, position);
  return product;
}

bool Layout::has_partial() const { return record_->reduce_op.has_value(); }

std::optional<ReduceOp> Layout::reduce_op() const { return record_->reduce_op; }

bool Layout::equivalent(const Layout& other) const {
  if (*this == other) return true;
  if (shape() != other.shape() || !mesh().same_ranks(other.mesh()) ||
      record_->splits != other.record_->splits ||
      record_->first_split != other.record_->first_split) {
    return false;
  }
  for (std::size_t i = 0; i < placements().size(); ++i) {
    const auto& mine = placements()[i];
    const auto& theirs = other.placements()[i];
    const bool involved = is_partial(mine) || is_partial(theirs);
    if (involved && mine != theirs && mesh().sizes()[i] > 1) return false;
  }
  return true;
}

std::size_t Layout::hash() const { return std::hash<const void*>{}(record_.get()); }

std::string Layout::placements_text() const {
  std::string orders;
  for (std::int64_t dim = 0; dim < ndim(); ++dim) {
    const auto cuts = splits(dim);
    const auto by_mesh_dim = [](const Split& a, const Split& b) { return a.mesh_dim < b.mesh_dim; };
    if (std::is_sorted(cuts.begin(), cuts.end(), by_mesh_dim)) continue;
    std::vector<std::string> labels;
    for (const auto& split : cuts) labels.push_back(mesh().dim_label(split.mesh_dim));
    orders += concat("{dim ", dim, ": ", joined(labels, ","), "}");
  }
  return tessera::to_string(placements()) + orders;
}

std::string Layout::to_string() const {
  return concat('[', joined(shape(), ","), ']', placements_text(), " on ", mesh());
}

std::ostream& operator<<(std::ostream& os, const Layout& layout) {
  return os << layout.to_string();
}

}  // namespace tessera
