#include "tessera/plan/estimate.h"

#include <algorithm>
#include <optional>

#include "tessera/base/divide.h"
#include "tessera/plan/segments.h"

namespace tessera::detail {
namespace {

constexpr std::int64_t kMostSampled = 64;
constexpr std::int64_t kSpread = 16;

/// Adds the ranks of one mesh: all, or the first, the last and some in between.
void add_sample(const MeshShape& mesh, std::vector<std::int64_t>& ranks) {
  const std::int64_t count = mesh.num_ranks();
  if (count <= kMostSampled) {
    for (std::int64_t i = 0; i < count; ++i) ranks.push_back(mesh.rank_at(i));
    return;
  }
  // Steps of the golden section visit the positions evenly whatever the mesh's strides.
  const std::int64_t step = (count / 1000 * 618 + count % 1000 * 618 / 1000) | 1;
  for (std::int64_t i = 0; i < kSpread; ++i) ranks.push_back(mesh.rank_at(i * step % count));
  ranks.push_back(mesh.rank_at(count - 1));
}

/// How many destination copies one source replica may at most have to serve per region.
std::int64_t copies_per_replica(const Roles& roles) {
  const std::int64_t copies = roles.destination_replicas.count();
  const std::int64_t shared = ceil_divide(copies, roles.source_replicas.count());
  // Whoever holds a contribution itself is served along its own replica coordinates.
  const std::int64_t own = roles.contributions.empty() ? 0 : roles.contributions.count();
  return std::min(copies, shared + own);
}

/// What one rank holds before and after, and what of it stays in place.
struct Holding {
  std::vector<IndexSet> source;
  std::vector<IndexSet> destination;
  bool receives = false;
  std::int64_t held = 0;
  std::int64_t needed = 0;
  std::int64_t kept = 0;

  Holding(const Roles& roles, std::int64_t rank) {
    const auto from = roles.from.mesh().position_of(rank);
    const auto to = roles.to.mesh().position_of(rank);
    receives = to && roles.roots.project(*to) == 0;
    const auto ndim = static_cast<std::size_t>(roles.from.ndim());
    held = from ? 1 : 0;
    needed = receives ? 1 : 0;
    kept = from && receives ? 1 : 0;
    source.resize(ndim);
    destination.resize(ndim);
    for (std::size_t d = 0; d < ndim; ++d) {
      const auto dim = static_cast<std::int64_t>(d);
      if (from) source[d] = roles.from.owned(dim, *from);
      if (receives) destination[d] = roles.to.owned(dim, *to);
      held *= source[d].size();
      needed *= destination[d].size();
      if (kept > 0) kept *= source[d].intersect(destination[d]).size();
    }
  }
};

/// How one rank's part falls apart into regions with different owners in another layout.
struct Regions {
  std::int64_t count = 1;
  /// True when a region does not lie together in memory: a dim behind the outermost is cut.
  bool scattered = false;

  Regions(const std::vector<IndexSet>& part, const Layout& other) {
    bool outermost = true;
    for (std::size_t d = 0; d < part.size(); ++d) {
      const std::int64_t owners = max_owner_count(part[d], other, static_cast<std::int64_t>(d));
      count *= owners;
      scattered |= owners > 1 && !outermost;
      outermost &= part[d].size() <= 1;
    }
  }
};

void raise_to(std::int64_t& most, std::int64_t value) { most = std::max(most, value); }

/// Raises `worst` to what one rank receives, in elements.
void add_received(const Roles& roles, const Holding& own, Traffic& worst) {
  if (own.needed == 0) return;
  const std::int64_t contributions = roles.contributions.count();
  const Regions regions(own.destination, roles.from);
  const std::int64_t received = own.needed * contributions - own.kept;
  raise_to(worst.received_bytes, received);
  raise_to(worst.messages, regions.count * contributions - (own.kept > 0 ? 1 : 0));
  // Contributions arrive in buffers of their own whatever their shape, to be reduced from there.
  if (regions.scattered || contributions > 1) raise_to(worst.packed_bytes, received);
}

/// Raises `worst` to about what one rank sends, in elements: the receivers of a shard share out
/// its replicas evenly. `packed` is raised likewise.
void add_sent(const Roles& roles, const Holding& own, Traffic& worst, std::int64_t& packed) {
  if (own.held == 0) return;
  const std::int64_t replicas = roles.source_replicas.count();
  const std::int64_t copies = roles.destination_replicas.count();
  const Regions regions(own.source, roles.to);
  const std::int64_t share = ceil_divide(own.held * copies, replicas);
  const std::int64_t sent = std::max<std::int64_t>(share - own.kept, 0);
  raise_to(worst.sent_bytes, sent);
  raise_to(worst.messages, ceil_divide(regions.count * copies, replicas) - (own.kept > 0 ? 1 : 0));
  if (regions.scattered) raise_to(packed, sent);
}

}  // namespace

std::int64_t most_held(const Layout& layout) {
  std::int64_t product = 1;
  for (std::int64_t dim = 0; dim < layout.ndim(); ++dim) {
    std::int64_t most = layout.shape()[static_cast<std::size_t>(dim)];
    for (const auto& split : layout.splits(dim)) {
      // Every piece is rounded up, and there are no more pieces than elements.
      const std::int64_t pieces = std::min(split.pieces, most);
      most = std::min(most, (most + pieces * (split.count - 1)) / split.count);
    }
    product *= most;
  }
  return product;
}

std::vector<std::int64_t> sample_ranks(const Layout& from, const Layout& to) {
  std::vector<std::int64_t> ranks;
  add_sample(from.mesh(), ranks);
  if (!from.mesh().same_ranks(to.mesh())) add_sample(to.mesh(), ranks);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

bool sample_is_complete(const Layout& from, const Layout& to) {
  return std::max(from.mesh().num_ranks(), to.mesh().num_ranks()) <= kMostSampled;
}

Traffic estimate_exchange(const Roles& roles, std::int64_t element_size) {
  Traffic worst;
  std::int64_t packed_to_send = 0;
  for (const auto rank : sample_ranks(roles.from, roles.to)) {
    const Holding own(roles, rank);
    add_received(roles, own, worst);
    add_sent(roles, own, worst, packed_to_send);
  }
  worst.packed_bytes += packed_to_send;
  for (auto* count : {&worst.received_bytes, &worst.sent_bytes, &worst.packed_bytes}) {
    *count *= element_size;
  }
  return worst;
}

std::int64_t most_exchanged(const Roles& roles) {
  return most_held(roles.to) * roles.contributions.count() +
         most_held(roles.from) * copies_per_replica(roles);
}

std::int64_t missing_elements(const Roles& roles, std::int64_t rank) {
  if (!roles.roots.empty()) return 0;
  const Holding own(roles, rank);
  return roles.contributions.empty() ? own.needed - own.kept : own.needed;
}

std::int64_t mean_bound_bytes(const Roles& roles, std::int64_t element_size) {
  if (!roles.roots.empty()) return 0;
  const auto ranks = sample_ranks(roles.from, roles.to);
  if (roles.contributions.empty()) {
    std::int64_t total = 0;
    for (const auto rank : ranks) total += missing_elements(roles, rank);
    return total * element_size / static_cast<std::int64_t>(ranks.size());
  }
  // Every element takes contributions - 1 transfers to be reduced at one of its destinations and
  // one more to each of the others; spectators hold copies, or further tensors of their own.
  std::int64_t copies = roles.destination_replicas.count();
  std::int64_t tensors = 1;
  for (std::size_t i = 0; i < roles.to.placements().size(); ++i) {
    const auto& placement = roles.to.placements()[i];
    if (!roles.same_mesh || placement != roles.from.placements()[i]) continue;
    if (is_replicate(placement)) copies *= roles.to.mesh().sizes()[i];
    if (is_partial(placement)) tensors *= roles.to.mesh().sizes()[i];
  }
  const std::int64_t transfers = tensors * (roles.contributions.count() - 1 + copies - 1);
  // A bound holds for all the more ranks: some may be in both meshes.
  const std::int64_t all =
      sample_is_complete(roles.from, roles.to) ? static_cast<std::int64_t>(ranks.size())
      : roles.same_mesh                        ? roles.from.mesh().num_ranks()
                        : roles.from.mesh().num_ranks() + roles.to.mesh().num_ranks();
  const std::int64_t bytes = roles.from.numel() * element_size;
  return bytes / all * transfers + bytes % all * transfers / all;
}

}  // namespace tessera::detail
