#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "tessera/comm/batch_packing.h"
#include "tessera/comm/group.h"
#include "tessera/comm/redistribute_local.h"
#include "tessera/comm/transport.h"
#include "tessera/plan/batch_plan.h"

namespace tessera::detail {

class WorldState;

/// What is asked of a redistribution of several tensors, of one rank.
struct BatchQuestion {
  std::span<const LayoutChange> changes;
  std::span<const at::ScalarType> dtypes;
  std::int64_t staging_budget;
};

/// One rank's way through a plan for several tensors, with everything found and worded that need not
/// be found and worded again the next time.
struct BatchRoute {
  /// One batch in which the rank takes part.
  struct Trip {
    /// Which tensors, and this rank's messages of each.
    std::vector<std::size_t> items;
    std::vector<std::shared_ptr<const RankStep>> parts;
    Group group;
    std::shared_ptr<const BatchPacking> packing;
    Traffic traffic;
  };

  /// What this rank's tensors must look like; nothing outside of their first meshes.
  std::vector<std::optional<Shape>> in_shapes;
  std::vector<Trip> trips;
  /// The tensors that go by themselves.
  std::vector<std::size_t> alone;
  /// Who must agree on all of it before the first byte moves; nothing when every rank keeps to
  /// itself.
  std::optional<Group> participants;
  /// True when they do so in the only trip, in which all of them take part; otherwise before.
  bool agrees_in_trip = false;
  Fingerprint fingerprint;
  std::string cause;
};

/// The routes of several tensors that one rank has taken. Used by that rank alone.
class BatchRouteCache {
 public:
  [[nodiscard]] std::shared_ptr<const BatchRoute> find(WorldState& world,
                                                       const BatchQuestion& question);

 private:
  struct Entry {
    std::vector<LayoutChange> changes;
    std::vector<at::ScalarType> dtypes;
    std::int64_t staging_budget;
    std::shared_ptr<const BatchRoute> route;
  };

  std::unordered_multimap<std::size_t, Entry> entries_;
};

}  // namespace tessera::detail
