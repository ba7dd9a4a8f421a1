#include "tessera/plan/exchange.h"

#include <algorithm>
#include <optional>

#include "tessera/base/check.h"
#include "tessera/plan/segments.h"

namespace tessera::detail {
namespace {

// Note [Who sends what]
// The shards of the source layout partition the tensor, so what a receiver needs falls apart into
// one region per source shard, each a product of runs per tensor dim. Every region comes from one
// replica of that shard (from each contribution, if the source is Partial):
//   - from the receiver's own copy, or along its own replica coordinates, if it holds the shard;
//   - otherwise from replica number (receiver's shard number + receiver's replica number) modulo
//     the number of replicas, which spreads the receivers of a shard evenly.
// Both sides can evaluate this rule for any pair of ranks in constant time, and it needs nothing
// but the layouts. Without Partial each rank receives exactly what it needs and does not hold,
// which is the least possible.

/// Enumerates the regions of one rank's local tensor that go to, or come from, different places.
class RegionList {
 public:
  RegionList(std::vector<Segments> segments, std::vector<Extent>& extents, std::size_t& box_total)
      : segments_(std::move(segments)),
        extents_(extents),
        box_total_(box_total),
        choice_(segments_.size(), 0) {
    extents_.reserve(extents_.size() + count() * segments_.size());
  }

  /// Calls visit(offset, add) for each combination of groups, one per tensor dim: `offset` is the
  /// sum of their offsets, and add() appends the boxes of the region and returns the message that
  /// holds them. Regions without elements do not appear.
  template <typename Visit>
  void for_each(Visit visit) {
    if (count() == 0) return;
    do {
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < segments_.size(); ++d) offset += group(d).offset;
      visit(offset, [this] { return add_boxes(); });
    } while (advance());
  }

  [[nodiscard]] std::size_t count() const {
    std::size_t count = 1;
    for (const auto& dim : segments_) count *= dim.groups.size();
    return count;
  }

 private:
  [[nodiscard]] const Segments::Group& group(std::size_t d) const {
    return segments_[d].groups[choice_[d]];
  }

  bool advance() {
    for (std::size_t d = segments_.size(); d-- > 0;) {
      if (++choice_[d] < segments_[d].groups.size()) return true;
      choice_[d] = 0;
    }
    return false;
  }

  Message add_boxes() {
    Message message;
    message.first_box = box_total_;
    message.numel = 1;
    message.box_count = 1;
    for (std::size_t d = 0; d < segments_.size(); ++d) {
      message.numel *= group(d).size;
      message.box_count *= group(d).count;
    }
    box_total_ += message.box_count;
    if (message.box_count == 1) {
      for (std::size_t d = 0; d < segments_.size(); ++d) {
        extents_.push_back(segments_[d].runs[group(d).first].local);
      }
      return message;
    }
    for (std::size_t box = 0; box < message.box_count; ++box) {
      std::size_t inner = message.box_count;
      for (std::size_t d = 0; d < segments_.size(); ++d) {
        inner /= group(d).count;
        const std::size_t run = group(d).first + box / inner % group(d).count;
        extents_.push_back(segments_[d].runs[run].local);
      }
    }
    return message;
  }

  std::vector<Segments> segments_;
  std::vector<Extent>& extents_;
  std::size_t& box_total_;
  std::vector<std::size_t> choice_;
};

std::vector<Segments> cut_by(const Layout& mine, std::int64_t position, const Layout& other) {
  std::vector<Segments> segments;
  segments.reserve(mine.shape().size());
  for (std::int64_t dim = 0; dim < mine.ndim(); ++dim) {
    segments.push_back(segments_by_owner(mine.owned(dim, position), other, dim));
  }
  return segments;
}

/// One rank's view of a direct exchange.
class Exchange {
 public:
  Exchange(const Roles& roles, std::int64_t rank)
      : roles_(roles),
        rank_(rank),
        source_(roles.from.mesh().position_of(rank)),
        destination_(roles.to.mesh().position_of(rank)) {}

  RankStep run() {
    step_.reduce = roles_.reduce;
    if (source_) step_.in_shape = roles_.from.local_shape(*source_);
    if (destination_) step_.out_shape = roles_.to.local_shape(*destination_);
    if (source_) collect_sends();
    if (destination_) {
      const bool root = roles_.roots.project(*destination_) == 0;
      if (!root) step_.fill_identity = roles_.fill;
      if (root) step_.divisor = roles_.divisor;
      if (root) collect_receives();
    }
    return std::move(step_);
  }

 private:
  /// The replica (an index into `source_replicas`) that serves receiver `receiver` at
  /// `destination` with shard `shard` of the source.
  [[nodiscard]] std::int64_t serving_replica(std::int64_t receiver, std::int64_t destination,
                                             std::int64_t shard) const {
    if (roles_.source_replicas.empty()) return 0;
    const auto source =
        roles_.same_mesh ? std::optional(destination) : roles_.from.mesh().position_of(receiver);
    if (source && roles_.source_shards.project(*source) == shard) {
      return roles_.source_replicas.index_of(*source);
    }
    return (roles_.destination_shards.index_of(destination) +
            roles_.destination_replicas.index_of(destination)) %
           roles_.source_replicas.count();
  }

  void collect_sends() {
    RegionList regions(cut_by(roles_.from, *source_, roles_.to), step_.extents, box_total_);
    const std::int64_t shard = roles_.source_shards.project(*source_);
    const std::int64_t replica = roles_.source_replicas.index_of(*source_);
    const std::int64_t spectator = roles_.spectators.project(*source_);
    const std::int64_t copies = roles_.destination_replicas.count();
    step_.sends.reserve(regions.count());
    regions.for_each([&](std::int64_t offset, auto add) {
      std::optional<Message> message;
      for (std::int64_t copy = 0; copy < copies; ++copy) {
        const std::int64_t to = offset + spectator + roles_.destination_replicas.offset_of(copy);
        const std::int64_t peer = roles_.to.mesh().rank_at(to);
        if (serving_replica(peer, to, shard) != replica) continue;
        if (!message) message = add();  // All copies of a region are packed from the same boxes.
        message->peer = peer;
        step_.sends.push_back(*message);
      }
    });
  }

  void collect_receives() {
    RegionList regions(cut_by(roles_.to, *destination_, roles_.from), step_.extents, box_total_);
    const std::int64_t spectator = roles_.spectators.project(*destination_);
    const std::int64_t contributions = roles_.contributions.count();
    step_.receives.reserve(regions.count() * static_cast<std::size_t>(contributions));
    regions.for_each([&](std::int64_t shard, auto add) {
      const std::int64_t from =
          shard + spectator +
          roles_.source_replicas.offset_of(serving_replica(rank_, *destination_, shard));
      Message message = add();
      for (std::int64_t i = 0; i < contributions; ++i) {
        message.peer = roles_.from.mesh().rank_at(from + roles_.contributions.offset_of(i));
        message.accumulate = i > 0;
        step_.receives.push_back(message);
      }
    });
  }

  const Roles& roles_;
  std::int64_t rank_;
  std::optional<std::int64_t> source_;
  std::optional<std::int64_t> destination_;
  std::size_t box_total_ = 0;
  RankStep step_;
};

std::int64_t coordinate(const Layout& layout, std::int64_t position, std::int64_t mesh_dim) {
  return position / layout.mesh().stride(mesh_dim) % layout.mesh().size(mesh_dim);
}

/// Where the part of tensor dim `dim` that `from` gives to `position` lies in the part that `to`
/// gives it; `to` has the same cuts but for some of the last ones.
Extent kept_extent(const Layout& from, const Layout& to, std::int64_t dim, std::int64_t position) {
  Extent kept{0, from.shape()[static_cast<std::size_t>(dim)]};
  const auto cuts = from.splits(dim);
  const std::size_t shared = to.splits(dim).size();
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const std::int64_t chunk = coordinate(from, position, cuts[i].mesh_dim);
    if (i >= shared) kept.begin += chunk_extent(kept.size, cuts[i].count, chunk).begin;
    kept.size = cuts[i].local_size(kept.size, chunk);
  }
  return kept;
}

}  // namespace

RankStep exchange_messages(const Roles& roles, std::int64_t rank) {
  return Exchange(roles, rank).run();
}

RankStep fill_messages(const Layout& from, const Layout& to, std::int64_t rank) {
  RankStep step;
  const auto position = from.mesh().position_of(rank);
  if (!position) return step;
  step.in_shape = from.local_shape(*position);
  step.out_shape = to.local_shape(*position);
  bool contributes = true;
  for (std::size_t i = 0; i < from.placements().size(); ++i) {
    const auto* partial = std::get_if<Partial>(&to.placements()[i]);
    if (from.mesh().sizes()[i] == 1) continue;  // Contributes to nothing, whatever its op.
    if (partial == nullptr || from.placements()[i] == to.placements()[i]) continue;
    // An average of equal copies is the copy itself; for the other ops one rank has the value.
    if (partial->op == ReduceOp::avg) continue;
    step.fill_identity = partial->op;
    const bool first = coordinate(from, *position, static_cast<std::int64_t>(i)) == 0;
    if (is_replicate(from.placements()[i]) && !first) contributes = false;
  }
  Message message;
  message.peer = rank;
  message.numel = from.local_numel(*position);
  message.box_count = 1;
  if (!contributes || message.numel == 0) return step;
  if (message.numel == to.local_numel(*position)) step.fill_identity.reset();
  for (const auto size : step.in_shape) step.extents.push_back({0, size});
  step.sends.push_back(message);
  for (std::int64_t dim = 0; dim < from.ndim(); ++dim) {
    step.extents.push_back(kept_extent(from, to, dim, *position));
  }
  message.first_box = 1;
  step.receives.push_back(message);
  return step;
}

}  // namespace tessera::detail
